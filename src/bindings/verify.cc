#include "headrace/verify.h"

#include <string>

#include "dataset.h"
#include "errors.h"
#include "store.h"

namespace headrace {
namespace {

nb::dict report_dict(const VerifyReport& report) {
  nb::dict out;
  out["object_count"] = report.object_count;
  out["sample_count"] = report.sample_count;
  out["read_bytes"] = report.read_bytes;
  out["stored_digest_count"] = report.stored_digest_count;
  out["second_read_count"] = report.second_read_count;
  out["problem_count"] = report.problem_count;
  nb::list problems;
  for (const VerifyProblem& problem : report.problems) {
    const std::string_view code = code_name(problem.code);
    problems.append(nb::make_tuple(problem.key, problem.position, nb::str(code.data(), code.size()),
                                   problem.message, problem.sample_count));
  }
  out["problems"] = std::move(problems);
  nb::list objects;
  for (const ObjectDigests& object : report.objects)
    objects.append(nb::make_tuple(object.key, object.size_bytes, object.hex));
  out["objects"] = std::move(objects);
  return out;
}

VerifyOptions make_options(std::uint32_t workers, std::uint32_t most_problems,
                           ProgressRelay& relay) {
  VerifyOptions options;
  options.worker_count = workers;
  options.most_problems = most_problems;
  options.progress = [&relay](std::uint64_t done, std::uint64_t total) {
    relay.store({done, total, 0});
  };
  return options;
}

nb::dict verify(PyDataset& dataset, PyStore& store, std::uint32_t workers,
                std::uint32_t most_problems, const nb::object& progress) {
  auto client = store.client.get();
  auto reader = dataset.reader.get();
  ProgressRelay relay(progress);
  const VerifyOptions options = make_options(workers, most_problems, relay);
  const VerifyReport report = value_or_raise(run_interruptible(
      [&](std::stop_token stop) {
        return verify_dataset(*reader->dataset(), client->store(), *client->pool(), options,
                              CallOptions{.stop = std::move(stop)});
      },
      [&relay] { relay.report(); }));
  relay.report();
  return report_dict(report);
}

void compare_index(PyDataset& dataset, PyStore& store) {
  auto client = store.client.get();
  auto reader = dataset.reader.get();
  raise_if_error(run_interruptible([&](std::stop_token stop) {
    return compare_stored_index(*reader->dataset(), client->store(), *client->pool(),
                                CallOptions{.stop = std::move(stop)});
  }));
}

nb::dict digest(PyStore& store, const std::vector<nb::tuple>& objects,
                const std::vector<std::string>& digests, std::uint32_t workers,
                const nb::object& progress) {
  auto client = store.client.get();
  std::vector<ObjectInfo> infos;
  infos.reserve(objects.size());
  for (const nb::tuple& row : objects) {
    ObjectInfo info;
    info.key = nb::cast<std::string>(row[0]);
    info.size_bytes = nb::cast<std::uint64_t>(row[1]);
    info.etag = nb::cast<std::string>(row[2]);
    infos.push_back(std::move(info));
  }
  ProgressRelay relay(progress);
  VerifyOptions options = make_options(workers, ~std::uint32_t{0}, relay);
  options.digests = digests;
  const VerifyReport report = value_or_raise(run_interruptible(
      [&](std::stop_token stop) {
        return digest_objects(infos, client->store(), *client->pool(), options,
                              CallOptions{.stop = std::move(stop)});
      },
      [&relay] { relay.report(); }));
  relay.report();
  return report_dict(report);
}

}  // namespace

void bind_verify(nb::module_& m) {
  m.def("verify_dataset", &verify, nb::arg("dataset"), nb::arg("store"), nb::kw_only(),
        nb::arg("workers") = 0, nb::arg("most_problems") = 1000, nb::arg("progress") = nb::none());
  m.def("compare_stored_index", &compare_index, nb::arg("dataset"), nb::arg("store"));
  m.def("digest_objects", &digest, nb::arg("store"), nb::arg("objects"), nb::kw_only(),
        nb::arg("digests"), nb::arg("workers") = 0, nb::arg("progress") = nb::none());
}

}  // namespace headrace
