// A decoder a feature: each looks for its own in the record, which costs a few nanoseconds a
// feature passed over (their sizes are known), and needs nothing that decoders would share. Whose
// column has a fixed size looks only once, in decode(), since its size is known before.
//
// A value of bytes may be an image, JSON, an array: then its decoder gets what is found.
#include <algorithm>
#include <cstring>
#include <string>

#include "base/endian.h"
#include "base/strings.h"
#include "decode/array/byte_column.h"
#include "headrace/decode.h"
#include "wire/example.h"

namespace headrace {
namespace {

using detail::FeatureKind;
using detail::FeatureView;
using Kind = TfFeature::Kind;

/// u32 0 and the number of values, in front of a list of bytes.
constexpr std::size_t kListHeadBytes = 8;

std::string_view values_of(FeatureKind kind) {
  if (kind == FeatureKind::kBytes) return "bytes";
  return kind == FeatureKind::kFloat ? "float32" : "int64";
}

FeatureKind wire_kind(Kind kind) { return static_cast<FeatureKind>(kind); }

ArrayType type_of(const TfFeature& feature) {
  return {.dtype = std::string(values_of(wire_kind(feature.kind))),
          .item_bytes = feature.kind == Kind::kFloat ? 4U : 8U,
          .shape = feature.shape};
}

/// What all decoders of features have in common: finding it.
class FeatureDecoder : public ValueDecoder {
 public:
  explicit FeatureDecoder(TfFeature feature) : feature_(std::move(feature)) {}

 protected:
  /// The feature, with as many values as it must have; kind kNone where the default stands for it.
  Result<FeatureView> find(std::span<const std::byte> value, std::uint64_t value_count) const {
    FeatureView view;
    if (!find_feature(value, feature_.name, view))
      return Status(Code::kCorrupt, "it is no tf.train.Example");
    if (view.kind == FeatureKind::kNone) {
      if (feature_.is_list || feature_.missing) return view;
      return wrong("is missing, and has no default");
    }
    const FeatureKind kind = wire_kind(feature_.kind);
    if (view.kind != kind)
      return wrong("has values of " + std::string(values_of(view.kind)) + ", not of " +
                   std::string(values_of(kind)));
    if (!feature_.is_list && view.value_count != value_count)
      return wrong("has " + std::to_string(view.value_count) + " values, not " +
                   std::to_string(value_count));
    return view;
  }

  Status wrong(const std::string& what) const {
    return Status(Code::kCorrupt, "feature '" + feature_.name + "' " + what);
  }

  const TfFeature feature_;
};

class NumbersDecoder final : public FeatureDecoder {
 public:
  explicit NumbersDecoder(TfFeature feature)
      : FeatureDecoder(std::move(feature)), type_(type_of(feature_)) {}

  Result<DecodeNeeds> needs(std::span<const std::byte> value) const override {
    if (!feature_.is_list) return DecodeNeeds{.output_bytes = type_.size_bytes()};
    HEADRACE_TRY_ASSIGN(const FeatureView view, find(value, 0));
    return DecodeNeeds{.output_bytes = view.value_count * type_.item_bytes};
  }

  Status decode(std::span<const std::byte> value, std::uint64_t,
                std::span<std::byte> out) const override {
    HEADRACE_TRY_ASSIGN(const FeatureView view, find(value, out.size() / type_.item_bytes));
    if (view.kind != FeatureKind::kNone) {
      write_numbers(view, false, out);
    } else if (feature_.missing) {
      std::copy(feature_.missing->begin(), feature_.missing->end(), out.begin());
    }
    return {};
  }

 private:
  const ArrayType type_;
};

class BytesListDecoder final : public FeatureDecoder {
 public:
  using FeatureDecoder::FeatureDecoder;

  Result<DecodeNeeds> needs(std::span<const std::byte> value) const override {
    HEADRACE_TRY_ASSIGN(const FeatureView view, find(value, 0));
    return DecodeNeeds{.output_bytes = kListHeadBytes + 4 * view.value_count + view.value_bytes};
  }

  Status decode(std::span<const std::byte> value, std::uint64_t,
                std::span<std::byte> out) const override {
    HEADRACE_TRY_ASSIGN(const FeatureView view, find(value, 0));
    store_le(out.data(), std::uint32_t{0});
    store_le(out.data() + 4, static_cast<std::uint32_t>(view.value_count));
    if (view.value_count > 0) write_byte_values(view, false, out.subspan(kListHeadBytes));
    return {};
  }
};

/// One value of bytes, as it is or as another decoder makes it.
class BytesDecoder final : public FeatureDecoder {
 public:
  /// `fixed_size_bytes`: of what is made of it.
  BytesDecoder(TfFeature feature, std::shared_ptr<const ValueDecoder> inner,
               std::uint64_t fixed_size_bytes)
      : FeatureDecoder(std::move(feature)),
        inner_(std::move(inner)),
        fixed_size_bytes_(fixed_size_bytes) {}

  Result<DecodeNeeds> needs(std::span<const std::byte> value) const override {
    HEADRACE_TRY_ASSIGN(const auto bytes, bytes_of(value));
    if (inner_ != nullptr) return inner_->needs(bytes);
    if (fixed_size_bytes_ > 0 && bytes.size() != fixed_size_bytes_)
      return wrong("has a value of " + std::to_string(bytes.size()) + " bytes, not of " +
                   std::to_string(fixed_size_bytes_));
    return DecodeNeeds{.output_bytes = bytes.size()};
  }

  Status decode(std::span<const std::byte> value, std::uint64_t key,
                std::span<std::byte> out) const override {
    HEADRACE_TRY_ASSIGN(const auto bytes, bytes_of(value));
    if (inner_ != nullptr) return inner_->decode(bytes, key, out);
    std::copy(bytes.begin(), bytes.end(), out.begin());
    return {};
  }

  std::string identity() const override {
    const std::string inner = inner_ != nullptr ? inner_->identity() : std::string();
    if (inner.empty()) return {};
    const std::string missing = feature_.missing ? to_hex(*feature_.missing) : "none";
    return "feature " + feature_.name + ", missing " + missing + ": " + inner;
  }

 private:
  Result<std::span<const std::byte>> bytes_of(std::span<const std::byte> value) const {
    HEADRACE_TRY_ASSIGN(const FeatureView view, find(value, 1));
    if (view.kind == FeatureKind::kNone) return std::span<const std::byte>(*feature_.missing);
    return view.run;
  }

  const std::shared_ptr<const ValueDecoder> inner_;
  const std::uint64_t fixed_size_bytes_;
};

class TfExample final : public Decode {
 public:
  explicit TfExample(std::vector<TfFeature> features) : features_(std::move(features)) {}

  Result<DecodedColumns> bind(const OutputColumn& stored) const override {
    // Records that all have the same length are records all the same.
    OutputColumn bytes = stored;
    bytes.fixed_size_bytes = 0;
    if (!detail::has_plain_bytes(bytes)) return detail::not_plain_bytes(stored, "tf.train.Example");
    DecodedColumns columns;
    for (const TfFeature& feature : features_) {
      if (feature.decode == nullptr) {
        columns.push_back(column_of(feature));
      } else {
        HEADRACE_TRY(append_decoded(feature, columns));
      }
    }
    return columns;
  }

 private:
  DecodedColumn column_of(const TfFeature& feature) const {
    DecodedColumn column;
    column.growth = 1.0 / static_cast<double>(features_.size());
    column.output.name = feature.name;
    const std::string dtype(values_of(wire_kind(feature.kind)));
    if (feature.kind == Kind::kBytes) {
      column.output.encoding = feature.is_list ? "list[bytes]" : "bytes";
      if (feature.is_list) {
        column.decoder = std::make_shared<BytesListDecoder>(feature);
      } else {
        column.decoder = std::make_shared<BytesDecoder>(feature, nullptr, 0);
      }
      return column;
    }
    if (feature.is_list) {
      column.output.encoding = "list:" + dtype;
    } else {
      column.output = array_column(feature.name, type_of(feature));
    }
    column.decoder = std::make_shared<NumbersDecoder>(feature);
    return column;
  }

  static Status append_decoded(const TfFeature& feature, DecodedColumns& columns) {
    OutputColumn bytes;
    bytes.name = feature.name;
    bytes.encoding = "bytes";
    HEADRACE_TRY_ASSIGN(DecodedColumns made, feature.decode->bind(bytes));
    for (DecodedColumn& column : made) {
      column.decoder = std::make_shared<BytesDecoder>(feature, std::move(column.decoder),
                                                      column.output.fixed_size_bytes);
      columns.push_back(std::move(column));
    }
    return {};
  }

  const std::vector<TfFeature> features_;
};

Status check_feature(const TfFeature& feature) {
  const auto wrong = [&](const std::string& what) {
    return Status(Code::kInvalidArgument, "tf_example: feature '" + feature.name + "' " + what);
  };
  const bool is_bytes = feature.kind == Kind::kBytes;
  if (feature.decode != nullptr && (!is_bytes || feature.is_list))
    return wrong("cannot be decoded further: that takes one value of bytes");
  if (feature.is_list && (!feature.shape.empty() || feature.missing))
    return wrong("has any number of values, and so neither a shape nor a default");
  if (is_bytes && !feature.shape.empty())
    return wrong("is of bytes, which have no shape: one value, or any number");
  if (is_bytes || feature.is_list) return {};
  HEADRACE_TRY(check_array_type(type_of(feature)));
  if (feature.missing && feature.missing->size() != type_of(feature).size_bytes())
    return wrong("has a default of " + std::to_string(feature.missing->size()) +
                 " bytes, where its values take " + std::to_string(type_of(feature).size_bytes()));
  return {};
}

}  // namespace

Result<std::shared_ptr<const Decode>> decode_tf_example(std::vector<TfFeature> features) {
  if (features.empty()) return Status(Code::kInvalidArgument, "tf_example: no feature is named");
  for (std::size_t i = 0; i < features.size(); ++i) {
    HEADRACE_TRY(check_feature(features[i]));
    for (std::size_t k = 0; k < i; ++k) {
      if (features[k].name == features[i].name)
        return Status(Code::kInvalidArgument,
                      "tf_example: feature '" + features[i].name + "' is named twice");
    }
  }
  return std::shared_ptr<const Decode>(std::make_shared<TfExample>(std::move(features)));
}

}  // namespace headrace
