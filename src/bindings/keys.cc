#include "keys.h"

#include <string_view>
#include <utility>

#include "buffers.h"
#include "errors.h"
#include "headrace/sealed_text.h"
#include "store_options.h"
#include "waiting.h"

namespace headrace {
namespace {

std::string_view text_of(const BufferArgument& buffer) {
  return {reinterpret_cast<const char*>(buffer.bytes().data()), buffer.bytes().size()};
}

nb::bytes to_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

}  // namespace

std::shared_ptr<const SealKey> read_key(const std::string& source) {
  return value_or_raise(run_interruptible([&](std::stop_token stop) {
    return SealKey::read(source, make_environment({}), std::move(stop));
  }));
}

void bind_keys(nb::module_& m) {
  nb::class_<PySealKey>(m, "SealKey")
      .def(
          "__init__",
          [](PySealKey* self, const std::string& source) {
            new (self) PySealKey{read_key(source)};
          },
          nb::arg("source"))
      .def_prop_ro("id", [](const PySealKey& self) { return self.key->id(); })
      .def(
          "seal_text",
          [](const PySealKey& self, const std::string& purpose, nb::handle text) {
            const BufferArgument source(text);
            return to_bytes(seal_text(*self.key, purpose, text_of(source)));
          },
          nb::arg("purpose"), nb::arg("text"));
  m.def(
      "open_text",
      [](const PySealKey* key, const std::string& purpose, nb::handle text,
         const std::string& where) {
        const BufferArgument source(text);
        auto opened =
            open_text(key != nullptr ? key->key.get() : nullptr, purpose, text_of(source));
        if (!opened) raise(std::move(opened).error().annotate(where), where);
        return to_bytes(*opened);
      },
      nb::arg("key").none(), nb::arg("purpose"), nb::arg("text"), nb::arg("where"));
}

}  // namespace headrace
