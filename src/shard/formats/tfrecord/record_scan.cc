// bounds_ always ends with the begin of the record that comes next (offset_), so that a file may
// end after any feed and finish() only compares. A record that is passed over without being read
// moves offset_ beyond what was fed: the next feed begins there.
//
// What is wrong with a record as an Example is no error of the scan: files of other messages are
// read as whole records. It is kept in facts_.problem, and whoever wants columns says it then.
#include "shard/formats/tfrecord/record_scan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "shard/codec/json_reader.h"
#include "shard/formats/tfrecord/record.h"

namespace headrace::detail {

std::string RecordFacts::to_text() const {
  // Messages may quote bytes of the file.
  return nlohmann::json{schema.to_text(), begins_with_examples, problem}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<RecordFacts> RecordFacts::from_text(std::string_view text) {
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const simdjson::dom::element root, parse_json(parser, text));
  RecordFacts facts;
  std::string_view schema, problem;
  if (root.at(0).get_string().get(schema) ||
      root.at(1).get_bool().get(facts.begins_with_examples) ||
      root.at(2).get_string().get(problem)) {
    return Status(Code::kCorrupt, "tfrecord: not the facts of a file");
  }
  HEADRACE_TRY_ASSIGN(facts.schema, ExampleSchema::from_text(schema));
  facts.problem = problem;
  return facts;
}

Status RecordScan::fail(Status status) const {
  return std::move(status).annotate(
      fmt::format("record {} at byte {}", bounds_.size() - 1, offset_));
}

bool RecordScan::is_wanted(std::uint64_t payload_bytes) const noexcept {
  return payload_bytes <= (options_.wants_schema ? options_.whole_bytes : kSmallRecordBytes);
}

Status RecordScan::feed(std::span<const std::byte> bytes) {
  while (bytes.size() >= kRecordHeaderBytes) {
    auto payload_bytes = parse_record_header(bytes);
    if (!payload_bytes) return fail(std::move(payload_bytes).error());
    const std::uint64_t frame_bytes = kRecordHeaderBytes + *payload_bytes + kRecordTrailerBytes;
    if (frame_bytes > kMostRecordBytes - offset_)
      return fail(Status(Code::kCorrupt, "tfrecord: a length that no file has"));
    if (frame_bytes > bytes.size()) {
      if (is_wanted(*payload_bytes)) {
        needed_bytes_ = frame_bytes;
        return Status();
      }
      facts_.schema.mark_unseen();
      bytes = {};
    } else {
      const auto payload = bytes.subspan(kRecordHeaderBytes, *payload_bytes);
      if (!is_record_data_right(payload)) {
        return fail(Status(Code::kCorrupt, "tfrecord: the checksum of the data does not match"));
      }
      if (is_wanted(*payload_bytes)) {
        HEADRACE_TRY(look_at(payload));
      } else {
        facts_.schema.mark_unseen();
      }
      bytes = bytes.subspan(frame_bytes);
    }
    offset_ += frame_bytes;
    bounds_.push_back(offset_);
  }
  needed_bytes_ = kRecordHeaderBytes;
  return Status();
}

Status RecordScan::look_at(std::span<const std::byte> payload) {
  if (!options_.wants_schema || !facts_.problem.empty()) return Status();
  std::string why;
  if (facts_.schema.add(payload, why)) {
    facts_.begins_with_examples = true;
    ++looked_at_;
    return Status();
  }
  facts_.problem = fmt::format("record {} at byte {}: {}", bounds_.size() - 1, offset_, why);
  if (looked_at_ < kFirstRecords) facts_.begins_with_examples = false;
  return Status();
}

Status RecordScan::finish(std::uint64_t size_bytes) {
  if (offset_ == size_bytes) return Status();
  if (!options_.is_lenient) {
    if (offset_ > size_bytes) {
      bounds_.pop_back();
      offset_ = bounds_.back();
    }
    return fail(Status(
        Code::kCorrupt,
        fmt::format("tfrecord: the file ends inside the record, after {} bytes", size_bytes)));
  }
  if (offset_ > size_bytes) bounds_.pop_back();
  cut_bytes_ = size_bytes - bounds_.back();
  return Status();
}

FileSamples RecordScan::take() {
  return {.bounds = std::move(bounds_),
          .has_gaps = false,
          .facts = options_.wants_schema ? facts_.to_text() : std::string(),
          .cut_bytes = cut_bytes_};
}

}  // namespace headrace::detail
