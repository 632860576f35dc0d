#pragma once
/// \file
/// A store, a pool, and datasets that are opened from them, for the tests of src/shard.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/testing/fake_store.h"
#include "shard/testing/read_dataset.h"

namespace headrace::testing {

class DatasetFixture : public ::testing::Test {
 protected:
  Result<std::shared_ptr<const Dataset>> open(const DatasetOptions& options = {}) {
    return Dataset::open(store_, *pool_, options);
  }
  /// What came of it; the message is kept for expect_message().
  template <class T>
  Code code_of(const Result<T>& result) {
    message_ = result ? "" : std::string(result.error().message());
    return result ? Code::kOk : result.error().code();
  }
  Code code(const DatasetOptions& options = {}) { return code_of(open(options)); }
  void expect_message(std::string_view part) {
    EXPECT_NE(message_.find(part), std::string::npos) << message_;
  }
  static DatasetOptions with_format(Format format) {
    DatasetOptions options;
    options.format = format;
    return options;
  }
  /// Of a column, of all samples.
  std::vector<std::string> values(const Dataset& dataset, std::size_t column = 0) {
    auto samples = read_all(store_, *pool_, dataset);
    EXPECT_TRUE(samples.has_value());
    std::vector<std::string> out;
    for (const Sample& sample : *samples) out.push_back(sample[column].bytes);
    return out;
  }

  FakeStore store_;
  std::unique_ptr<SlabPool> pool_ = make_pool();
  std::string message_;
};

}  // namespace headrace::testing
