#pragma once
/// \file
/// The Blob service's XML: text in, values out, and back. Pure; the text is bounded by the caller.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace::azure {

/// The parts of an <Error> that messages use. Empty when the body is not one.
struct ErrorBody {
  std::string code;
  std::string message;
};

/// Reads an <Error> document; also one that is cut off, as far as it goes.
ErrorBody parse_error_body(std::string_view body);

/// Reads the EnumerationResults of List Blobs with include=metadata. Keys and prefixes lose
/// `root_prefix`; the key that equals it is left out, and so are the empty blobs that stand for
/// directories in accounts with a hierarchical namespace. Errors: kCorrupt.
Result<ListPage> parse_list(std::string_view body, std::string_view root_prefix);

/// One page of the containers of an account. `next` is empty on the last one.
struct ContainerPage {
  std::vector<std::string> names;
  std::string next;
};

/// Reads the EnumerationResults of List Containers. Errors: kCorrupt.
Result<ContainerPage> parse_containers(std::string_view body);

/// A block that waits for its commit, or was committed.
struct Block {
  std::string id;  ///< Base64.
  std::uint64_t size_bytes = 0;
  bool is_committed = false;
};

/// Reads a BlockList. Errors: kCorrupt.
Result<std::vector<Block>> parse_block_list(std::string_view body);

/// The body of Put Block List: each block as last sent, committed or not, so that a repeated commit
/// succeeds.
std::string format_block_list(std::span<const std::string> block_ids);

}  // namespace headrace::azure
