#pragma once
/// \file
/// The one test suite that every store passes. To add a store: derive a ContractWorld, and
/// instantiate StoreContract with it, plain and with faults (see local_contract_test.cc).
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/memory.h"
#include "headrace/store.h"

namespace headrace::contract {

/// A place with nothing in it, which one test has for itself.
class ContractWorld {
 public:
  virtual ~ContractWorld() = default;
  /// Opens a store on it; url, endpoint and credentials are the world's, all other options the
  /// test's.
  virtual Result<std::unique_ptr<Store>> open(StoreOptions options) = 0;
  /// Smallest allowed size of a part that is not the last, bytes.
  virtual std::uint64_t least_part_bytes() const { return 1; }
  /// False for keys that the vendor does not keep as they are.
  virtual bool takes_key(std::string_view /*key*/) const { return true; }
  /// True where a version that was read may be read again after the object has changed.
  virtual bool keeps_old_versions() const { return false; }
  /// False for servers whose answer to a range just behind the object's end is malformed.
  virtual bool answers_range_at_end() const { return true; }
  /// Requests of each of three handles under random load; fewer where the server is not ours and
  /// takes milliseconds for each.
  virtual std::uint64_t load_request_count() const { return 1'500; }
};

struct ContractCase {
  std::string name;
  std::function<std::unique_ptr<ContractWorld>()>
      make_world;  ///< nullptr result: not available here; the test is skipped.
  bool has_faults =
      false;  ///< Wrapped in a FaultStore that reorders completions and accepts short.
};

void PrintTo(const ContractCase& contract_case,
             std::ostream* out);  // NOLINT(readability-identifier-naming): gtest's name

/// The case and its faulty twin.
std::vector<ContractCase> plain_and_faulty(
    const std::string& name, std::function<std::unique_ptr<ContractWorld>()> make_world);
std::string case_name(const ::testing::TestParamInfo<ContractCase>& info);

class StoreContract : public ::testing::TestWithParam<ContractCase> {
 protected:
  void SetUp() override;
  /// Closes the store and checks that every slab came back.
  void TearDown() override;

  Store& store() { return *store_; }
  SlabPool& pool() { return *pool_; }
  ContractWorld& world() { return *world_; }
  /// Another store on the same world.
  std::unique_ptr<Store> open(const StoreOptions& options = {});

  /// Keeps a text alive for the length of the test.
  std::string_view keep(std::string text) { return texts_.emplace_back(std::move(text)); }
  Request get_request(std::string_view key, std::uint64_t offset_bytes, std::uint64_t length_bytes);
  Request put_request(std::string_view key, std::string_view bytes);

  /// Submits all, again where the store takes fewer, and waits for all. Checks that each tag comes
  /// exactly once.
  std::vector<Completion> run(Store& store, std::vector<Request> requests);
  Completion run_one(Request request);
  /// Waits for exactly `count` completions.
  static std::vector<Completion> take(Store& store, std::size_t count);

  /// Writes an object; returns its version.
  std::string put(std::string_view key, std::string_view bytes);
  /// Writes ten digits with these settings.
  Status put_with(std::string_view key, const ObjectSettings& settings);
  /// Reads [offset, offset + length), which must succeed.
  std::string get(std::string_view key, std::uint64_t offset_bytes, std::uint64_t length_bytes);
  std::vector<std::string> keys_below(const std::string& prefix);

 private:
  std::unique_ptr<ContractWorld> world_;
  std::unique_ptr<SlabPool> pool_;
  std::unique_ptr<Store> store_;
  std::deque<std::string> texts_;
};

/// `size_bytes` bytes that differ from place to place.
std::string pattern(std::uint64_t size_bytes, std::uint64_t seed = 0);
std::string_view text_of(const Completion& completion, std::size_t slab_offset_bytes = 0);

/// No wait in this suite lasts this long unless the store lost a completion.
TimePoint far_future();

}  // namespace headrace::contract
