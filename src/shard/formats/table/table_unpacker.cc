#include <mutex>

#include "headrace/table.h"

namespace headrace {
namespace {

// One a process: the interpreter that it calls is one a process, too.
std::mutex g_mutex;
std::shared_ptr<TableUnpacker>& slot() {
  static std::shared_ptr<TableUnpacker> unpacker;
  return unpacker;
}

}  // namespace

void set_table_unpacker(std::shared_ptr<TableUnpacker> unpacker) {
  const std::lock_guard lock(g_mutex);
  slot() = std::move(unpacker);
}

Result<std::shared_ptr<TableUnpacker>> table_unpacker() {
  const std::lock_guard lock(g_mutex);
  if (slot() == nullptr) {
    return Status(Code::kUnsupported,
                  "tables are unpacked by pyarrow: open them from Python, with pyarrow installed "
                  "(pip install pyarrow)");
  }
  return slot();
}

}  // namespace headrace
