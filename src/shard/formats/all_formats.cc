// The one list of all formats. Content is asked about in this order: surer marks first, as an
// object may look like several formats; those without any mark stand last.
#include "shard/formats/arrayrecord/array_record_driver.h"
#include "shard/formats/csv/csv_driver.h"
#include "shard/formats/litdata/litdata_driver.h"
#include "shard/formats/mds/mds_driver.h"
#include "shard/formats/numpy/numpy_driver.h"
#include "shard/formats/raw/raw_driver.h"
#include "shard/formats/table/table_driver.h"
#include "shard/formats/text/text_driver.h"
#include "shard/formats/tfrecord/tfrecord_driver.h"
#include "shard/formats/tokens/tokens_driver.h"
#include "shard/formats/webdataset/webdataset_driver.h"

namespace headrace::detail {
namespace {

constexpr const FormatDriver* kFormats[] = {
    &kTableDriver,        // PAR1, ARROW1
    &kTfRecordDriver,     // a CRC in the first 12 bytes
    &kArrayRecordDriver,  // a hash in the first 64
    &kNumpyDriver,        // \x93NUMPY, or a zip of such
    &kWebDatasetDriver,   // the sum of a tar header
    &kMdsDriver,          // offsets that ascend, and JSON behind them
    &kLitDataDriver,      // offsets that ascend
    &kTextDriver,         // JSON
    &kCsvDriver,          // none from here on
    &kTokensDriver,       //
    &kRawDriver,          //
};

}  // namespace

std::span<const FormatDriver* const> all_formats() noexcept { return kFormats; }

}  // namespace headrace::detail
