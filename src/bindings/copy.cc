#include "headrace/copy.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "errors.h"
#include "names.h"
#include "option_table.h"
#include "store.h"

namespace headrace {
namespace {

/// A job with the stores that it needs.
struct PyCopyJob {
  // The job is destroyed first, since it uses the stores.
  std::shared_ptr<StoreClient> from, to;
  std::unique_ptr<CopyJob> job;
};

struct PyCopyNames {
  std::shared_ptr<CopyNames> names = std::make_shared<CopyNames>();
};

CopyRule parse_rule(const std::string& name) {
  return by_name<CopyRule>("rule", name,
                           {{"always", CopyRule::kAlways},
                            {"absent", CopyRule::kIfAbsent},
                            {"size", CopyRule::kIfSizeDiffers},
                            {"newer", CopyRule::kIfNewer},
                            {"different", CopyRule::kIfDifferent}});
}

std::vector<Glob> parse_globs(const std::vector<std::string>& patterns) {
  std::vector<Glob> globs;
  for (const std::string& pattern : patterns) globs.push_back(value_or_raise(Glob::parse(pattern)));
  return globs;
}

using Task = std::tuple<std::string, std::string, bool, std::size_t, std::string>;
using Patterns = std::vector<std::string>;

OptionTable<CopyOptions> make_table() {
  return {
      {"rule", parsed(&CopyOptions::rule, parse_rule)},
      {"include",
       [](CopyOptions& options, nb::handle value) {
         options.filter.include = parse_globs(nb::cast<Patterns>(value));
       }},
      {"exclude",
       [](CopyOptions& options, nb::handle value) {
         options.filter.exclude = parse_globs(nb::cast<Patterns>(value));
       }},
      {"delete", plain(&CopyOptions::deletes_extra)},
      {"flatten", plain(&CopyOptions::flattens)},
      {"names", [](CopyOptions& options,
                   nb::handle value) { options.names = nb::cast<PyCopyNames&>(value).names; }},
      {"dry_run", plain(&CopyOptions::is_dry_run)},
      {"events", plain(&CopyOptions::keeps_events)},
      {"keep_times", plain(&CopyOptions::keeps_times)},
      {"fsync", plain(&CopyOptions::syncs_files)},
      // Of every task: a version is that of one object.
      {"version_id",
       [](CopyOptions& options, nb::handle value) {
         for (CopyTask& task : options.tasks) task.version_id = nb::cast<std::string>(value);
       }},
      {"part_bytes", plain(&CopyOptions::part_bytes)},
      {"memory_bytes", plain(&CopyOptions::memory_bytes)},
      {"max_in_flight", plain(&CopyOptions::max_in_flight)},
      {"threads", plain(&CopyOptions::thread_count)},
  };
}

std::vector<CopyTask> to_tasks(const std::vector<Task>& tasks) {
  std::vector<CopyTask> out;
  for (const auto& [from, to, is_tree, strip, pattern] : tasks)
    out.push_back({from, to, is_tree, strip, pattern});
  return out;
}

CopyOptions to_options(const std::vector<Task>& tasks, const nb::dict& fields) {
  static const OptionTable<CopyOptions> kTable = make_table();
  CopyOptions options;
  options.tasks = to_tasks(tasks);
  kTable.apply(fields, options);
  return options;
}

void take_names(PyStore& source, PyStore& target, const std::vector<Task>& tasks,
                const nb::dict& fields) {
  const CopyOptions options = to_options(tasks, fields);
  if (options.names == nullptr)
    raise(Status(Code::kInvalidArgument, "names: where they are kept is missing"));
  auto from = source.client.get();
  auto to = target.client.get();
  raise_if_error(run_interruptible([&](std::stop_token stop) {
    return take_copy_names(from->store(), to->store(), options, std::move(stop));
  }));
}

void open_job(PyCopyJob* self, PyStore& source, PyStore& target, const std::vector<Task>& tasks,
              const nb::dict& fields) {
  const CopyOptions options = to_options(tasks, fields);
  auto from = source.client.get();
  auto to = target.client.get();
  auto job = value_or_raise(CopyJob::create(from->store(), to->store(), options));
  new (self) PyCopyJob{std::move(from), std::move(to), std::move(job)};
}

nb::dict progress(const PyCopyJob& self) {
  const CopyProgress now = self.job->progress();
  nb::dict out;
  out["found"] = now.found_count;
  out["found_bytes"] = now.found_bytes;
  out["done"] = now.done_count;
  out["done_bytes"] = now.done_bytes;
  out["resumed_bytes"] = now.resumed_bytes;
  out["skipped"] = now.skipped_count;
  out["deleted"] = now.deleted_count;
  out["failed"] = now.failed_count;
  out["is_listing_done"] = now.is_listing_done;
  return out;
}

void call_if_any(const nb::object& tick) {
  if (!tick.is_none()) tick();
}

void run(PyCopyJob& self, const nb::object& tick) {
  raise_if_error(
      run_interruptible([&](std::stop_token stop) { return self.job->run(std::move(stop)); },
                        [&] { call_if_any(tick); }));
}

nb::list take_events(PyCopyJob& self) {
  nb::list out;
  for (const CopyEvent& event : self.job->take_events()) {
    const char* const kind = event.kind == CopyEvent::Kind::kCopied ? "copy" : "delete";
    out.append(
        nb::make_tuple(kind, event.from_key, event.to_key, event.size_bytes, event.from_etag));
  }
  return out;
}

nb::list failures(const PyCopyJob& self) {
  nb::list out;
  for (const CopyFailure& failure : self.job->failures()) {
    out.append(nb::make_tuple(failure.key, std::string(code_name(failure.status.code())),
                              readable_text(failure.status.message())));
  }
  return out;
}

/// (key, error) of each object that stays.
nb::list remove_those_copied(PyStore& store, const std::vector<std::string>& keys,
                             const std::vector<std::string>& etags) {
  if (keys.size() != etags.size())
    raise(Status(Code::kInvalidArgument, "as many ETags as keys, please"));
  auto client = store.client.get();
  const std::vector<Status> statuses = run_interruptible([&](std::stop_token stop) {
    return remove_copied(client->store(), keys, etags, {.stop = std::move(stop)});
  });
  nb::list stay;
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    if (!statuses[i].ok()) stay.append(nb::make_tuple(keys[i], make_error(statuses[i], keys[i])));
  }
  return stay;
}

ObjectInfo write_from(PyStore& store, const std::string& key, int fd, std::uint64_t part_bytes,
                      std::uint64_t memory_bytes, bool if_absent) {
  auto client = store.client.get();
  const StreamOptions options{
      .part_bytes = part_bytes, .memory_bytes = memory_bytes, .if_absent = if_absent};
  return value_or_raise(run_interruptible([&](std::stop_token stop) {
                          return write_stream(fd, client->store(), key, options, std::move(stop));
                        }),
                        key);
}

std::uint64_t read_to(PyStore& store, const std::string& key, int fd, std::uint64_t begin,
                      std::uint64_t end, std::uint64_t memory_bytes, const std::string& version_id,
                      const nb::object& tick) {
  auto client = store.client.get();
  const StreamOptions options{.memory_bytes = memory_bytes, .version_id = version_id};
  const auto read = [&](std::stop_token stop) {
    return read_stream(client->store(), key, fd, begin, end, options, std::move(stop));
  };
  return value_or_raise(run_interruptible(read, [&] { call_if_any(tick); }), key);
}

}  // namespace

void bind_copy(nb::module_& m) {
  nb::class_<Glob>(m, "Glob")
      .def(
          "__init__",
          [](Glob* self, const std::string& pattern) {
            new (self) Glob(value_or_raise(Glob::parse(pattern)));
          },
          nb::arg("pattern"))
      .def(
          "matches", [](const Glob& glob, const std::string& text) { return glob.matches(text); },
          nb::arg("text"))
      .def_prop_ro("prefix", &Glob::prefix)
      .def_prop_ro("has_wildcard", &Glob::has_wildcard);
  nb::class_<NameFilter>(m, "NameFilter")
      .def(
          "__init__",
          [](NameFilter* self, const Patterns& include, const Patterns& exclude) {
            new (self) NameFilter{parse_globs(include), parse_globs(exclude)};
          },
          nb::arg("include"), nb::arg("exclude"))
      .def(
          "accepts",
          [](const NameFilter& filter, const std::string& name) { return filter.accepts(name); },
          nb::arg("name"));
  nb::class_<PyCopyNames>(m, "CopyNames").def(nb::init<>());
  m.def(
      "check_replaceable", [](const std::string& path) { raise_if_error(check_replaceable(path)); },
      nb::arg("path"));
  m.def(
      "may_meet",
      [](const std::vector<Task>& tasks, bool flattens) {
        return may_meet(to_tasks(tasks), flattens);
      },
      nb::arg("tasks"), nb::arg("flatten"));
  m.def(
      "is_same_object",
      [](PyStore& source, const std::string& from_key, PyStore& target, const std::string& to_key) {
        const auto from = source.client.get();
        const auto to = target.client.get();
        return is_same_object(from->store(), from_key, to->store(), to_key);
      },
      nb::arg("source"), nb::arg("from_key"), nb::arg("target"), nb::arg("to_key"));
  m.def("remove_copied", &remove_those_copied, nb::arg("store"), nb::arg("keys"), nb::arg("etags"));
  m.def("take_copy_names", &take_names, nb::arg("source"), nb::arg("target"), nb::arg("tasks"),
        nb::arg("options"));
  nb::class_<PyCopyJob>(m, "CopyJob")
      .def("__init__", &open_job, nb::arg("source"), nb::arg("target"), nb::arg("tasks"),
           nb::arg("options") = nb::dict())
      .def("run", &run, nb::arg("tick") = nb::none())
      .def("progress", &progress)
      .def("take_events", &take_events)
      .def("failures", &failures);
  m.def("write_stream", &write_from, nb::arg("store"), nb::arg("key"), nb::arg("fd"),
        nb::arg("part_bytes") = std::uint64_t{8} << 20,
        nb::arg("memory_bytes") = std::uint64_t{128} << 20, nb::arg("if_absent") = false);
  m.def("read_stream", &read_to, nb::arg("store"), nb::arg("key"), nb::arg("fd"),
        nb::arg("begin") = 0, nb::arg("end") = UINT64_MAX,
        nb::arg("memory_bytes") = std::uint64_t{128} << 20, nb::arg("version_id") = "",
        nb::arg("tick") = nb::none());
}

}  // namespace headrace
