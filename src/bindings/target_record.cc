// The record keeps nothing but what lies in the target: a TargetRecord is made for each call, over
// the store's client, and closing the store ends those under way.
#include "headrace/target_record.h"

#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>

#include "errors.h"
#include "store.h"

NAMESPACE_BEGIN(NB_NAMESPACE)
NAMESPACE_BEGIN(detail)

/// Facts are a dict in Python; those that it does not name are none.
template <>
struct type_caster<headrace::ShardFacts> {
  NB_TYPE_CASTER(headrace::ShardFacts, const_name("dict[str, typing.Any]"))

  bool from_python(handle given, std::uint32_t, cleanup_list*) noexcept {
    bool is_good = PyDict_Check(given.ptr());
    headrace::visit_facts(value, [&](const char* name, auto& member) {
      PyObject* const fact = is_good ? PyDict_GetItemString(given.ptr(), name) : nullptr;
      if (fact != nullptr) is_good = try_cast(handle(fact), member);
    });
    return is_good;
  }
  static handle from_cpp(const headrace::ShardFacts& facts, rv_policy, cleanup_list*) {
    dict out;
    headrace::visit_facts(facts,
                          [&out](const char* name, const auto& member) { out[name] = member; });
    return out.release();
  }
};

NAMESPACE_END(detail)
NAMESPACE_END(NB_NAMESPACE)

namespace headrace {
namespace {

struct PyTargetRecord {
  PyStore& store;  ///< Lives as long as the Python object.
  PackId id;
};

/// Calls a member function so that Ctrl-C and Store.close() end it; returns its value or raises its
/// error.
template <class Result, class... Parameters, class... Arguments>
auto ask(PyTargetRecord& self, Result (TargetRecord::*function)(Parameters...) const,
         const Arguments&... arguments) {
  auto client = self.store.client.get();
  auto result = run_interruptible([&](std::stop_token stop) {
    std::stop_source ended;
    const auto end = [&ended] { ended.request_stop(); };
    const std::stop_callback on_signal(std::move(stop), end);
    const std::stop_callback on_close(client->closing(), end);
    const TargetRecord record(client->store(), *client->pool(), self.id);
    return (record.*function)(arguments..., CallOptions{.stop = ended.get_token()});
  });
  if constexpr (std::is_same_v<Result, Status>) {
    raise_if_error(result);
  } else {
    return value_or_raise(std::move(result));
  }
}

using Self = PyTargetRecord;
using AllFacts = std::vector<ShardFacts>;
using Text = std::string;

}  // namespace

void bind_target_record(nb::module_& m) {
  nb::class_<Self>(m, "TargetRecord")
      .def(
          "__init__",
          [](Self* self, PyStore& store, Text digest, Text plan, Text format, bool is_compressed) {
            new (self) Self{store, {digest, plan, format, is_compressed}};
          },
          nb::keep_alive<1, 2>(), nb::arg("store"), nb::arg("digest"), nb::arg("plan"),
          nb::arg("format"), nb::arg("is_compressed"))
      .def(
          "name_of", [](Self& self, std::uint64_t shard) { return self.id.name_of(shard); },
          nb::arg("shard"))
      .def("load", [](Self& self) { ask(self, &TargetRecord::load); })
      .def("check_plan", [](Self& self) { ask(self, &TargetRecord::check_plan); })
      .def("reopen", [](Self& self) { return ask(self, &TargetRecord::reopen); })
      .def(
          "begin_write",
          [](Self& self, const Text& run) { return ask(self, &TargetRecord::begin_write, run); },
          nb::arg("run"))
      .def(
          "check_run",
          [](Self& self, const Text& run) { ask(self, &TargetRecord::check_run, run); },
          nb::arg("run"))
      .def(
          "record",
          [](Self& self, std::uint64_t shard, const ShardFacts& facts) {
            ask(self, &TargetRecord::record, shard, facts);
          },
          nb::arg("shard"), nb::arg("facts"))
      .def(
          "forget",
          [](Self& self, std::uint64_t shard) { ask(self, &TargetRecord::forget, shard); },
          nb::arg("shard"))
      .def("done", [](Self& self) { return ask(self, &TargetRecord::done); })
      .def("recorded", [](Self& self) { return ask(self, &TargetRecord::recorded); })
      .def("is_finished", [](Self& self) { return ask(self, &TargetRecord::is_finished); })
      .def("finished", [](Self& self) { return ask(self, &TargetRecord::finished); })
      .def(
          "finish",
          [](Self& self, const AllFacts& facts, const Text& config) {
            ask(self, &TargetRecord::finish, facts, config);
          },
          nb::arg("facts"), nb::arg("config_json"))
      .def(
          "finish_write",
          [](Self& self, const Text& run, const AllFacts& facts, const Text& config) {
            ask(self, &TargetRecord::finish_write, run, facts, config);
          },
          nb::arg("run"), nb::arg("facts"), nb::arg("config_json"));
}

}  // namespace headrace
