#pragma once
/// \file
/// What is known of a finished shard.
#include <cstdint>
#include <string>

namespace headrace {

/// What is known of a finished shard.
struct ShardFacts {
  std::string name;  ///< Of the object.
  std::uint64_t sample_count = 0;
  std::uint64_t raw_bytes = 0;     ///< Before compression.
  std::uint64_t stored_bytes = 0;  ///< Size of the object.
  std::string raw_hash;            ///< Empty without ShardFormat::hash.
  std::string zip_hash;            ///< Empty unless compressed and hashed.
  std::string content;             ///< LitData: tells one content from another. Else as you like.
  friend bool operator==(const ShardFacts&, const ShardFacts&) = default;
};

/// Calls `visit(name, member)` for each fact, by the names that records and Python have for them.
template <class Facts, class Visit>
void visit_facts(Facts& facts, Visit&& visit) {
  visit("bytes", facts.stored_bytes);
  visit("content", facts.content);
  visit("name", facts.name);
  visit("raw_bytes", facts.raw_bytes);
  visit("raw_hash", facts.raw_hash);
  visit("samples", facts.sample_count);
  visit("zip_hash", facts.zip_hash);
}

}  // namespace headrace
