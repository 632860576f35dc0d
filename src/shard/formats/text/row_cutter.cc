#include "shard/formats/text/row_cutter.h"

#include "shard/formats/csv/csv_cutter.h"
#include "shard/formats/text/line_cutter.h"

namespace headrace::detail {

Result<RowReader> make_row_reader(std::string_view layout_json) {
  if (is_csv_layout(layout_json)) {
    HEADRACE_TRY_ASSIGN(CsvLayout layout, parse_csv_layout(layout_json));
    const std::size_t count = layout.columns.size();
    return RowReader{std::make_unique<CsvCutter>(layout), count};
  }
  HEADRACE_TRY_ASSIGN(TextLayout layout, parse_text_layout(layout_json));
  const std::size_t count = text_columns(layout).size();
  return RowReader{std::make_unique<LineCutter>(std::move(layout)), count};
}

}  // namespace headrace::detail
