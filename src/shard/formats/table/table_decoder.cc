#include <mutex>

#include "headrace/table.h"

namespace headrace {
namespace {

// One a process: the interpreter that it calls is one a process, too.
std::mutex g_mutex;
std::shared_ptr<TableDecoder>& slot() {
  static std::shared_ptr<TableDecoder> decoder;
  return decoder;
}

}  // namespace

void set_table_decoder(std::shared_ptr<TableDecoder> decoder) {
  const std::lock_guard lock(g_mutex);
  slot() = std::move(decoder);
}

Result<std::shared_ptr<TableDecoder>> table_decoder() {
  const std::lock_guard lock(g_mutex);
  if (slot() == nullptr) {
    return Status(Code::kUnsupported,
                  "tables are decoded by pyarrow: open them from Python, with pyarrow installed "
                  "(pip install pyarrow)");
  }
  return slot();
}

}  // namespace headrace
