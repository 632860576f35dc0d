#pragma once
/// \file
/// Decode: makes of the stored bytes of a column what a batch delivers: pixels of a JPEG, the array
/// of an .npy file, the samples of a sound.
///
/// Place: src/decode/. Pure: bytes in, bytes out. feed calls it where a batch is finished, on
/// several threads, and gives it its place in the batch buffer.
///
/// Threads: all of it is immutable; all functions from any thread, several at once.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/output_column.h"
#include "headrace/status.h"

namespace headrace {

/// What decoding a value takes.
struct DecodeNeeds {
  std::uint64_t output_bytes = 0;
  /// Beside the output, at most, meanwhile: pixels before they are resized, what a codec
  /// allocates. Charged to the memory limit. A thread keeps up to 9 MiB of it for the next value.
  std::uint64_t workspace_bytes = 0;
};

class ValueDecoder {
 public:
  virtual ~ValueDecoder() = default;

  /// Looks at the value's header only, so it is cheap (about 1 us for a JPEG). Errors: kCorrupt (it
  /// is no such thing, or larger than allowed), kUnsupported (a kind that is not decoded here).
  /// Either makes the sample a bad one.
  virtual Result<DecodeNeeds> needs(std::span<const std::byte> value) const = 0;

  /// Writes the value, exactly `out.size()` == needs(value).output_bytes bytes (for a column of
  /// fixed size: its fixed_size_bytes). `key` decides what is random: the same key, value and
  /// options give the same bytes on every machine. `out` is undefined after an error. Errors:
  /// kCorrupt, kUnsupported.
  virtual Status decode(std::span<const std::byte> value, std::uint64_t key,
                        std::span<std::byte> out) const = 0;

  /// All that decides what decode() writes, but for the value: options, versions of libraries. What
  /// was written under one identity may be kept and taken for what the same would write now. Empty:
  /// the key decides, too, or writing it anew is as cheap as reading it.
  virtual std::string identity() const { return {}; }
};

/// What is made of the values of a column.
struct DecodedColumn {
  OutputColumn output;
  /// nullptr: the bytes stay as they are, and are only read as something else.
  std::shared_ptr<const ValueDecoder> decoder;
  /// Where sizes vary: how many times the stored bytes a value takes, about. Only plans memory.
  double growth = 10;
};
using DecodedColumns = std::vector<DecodedColumn>;

/// What a user asks for, of any column.
class Decode {
 public:
  virtual ~Decode() = default;
  /// For a column: what it becomes, one column or several, each with its own name. Each decoder
  /// gets the whole stored value. Errors: kInvalidArgument (its values can't be what is decoded
  /// here: names the column, what it has, and what would do).
  virtual Result<DecodedColumns> bind(const OutputColumn& stored) const = 0;
};

/// What makes a value random in the same way wherever it is decoded: of the run's seed, its epoch
/// and the sample's position in the dataset.
std::uint64_t decode_key(std::uint64_t seed, std::uint64_t epoch, std::uint64_t position) noexcept;

/// Types of pixels that a batch has.
enum class PixelType : std::uint8_t { kUint8, kFloat16, kBfloat16, kFloat32 };
/// Order of a value's axes: height, width, channels, or channels first.
enum class PixelLayout : std::uint8_t { kHwc, kChw };
/// kColor: 3 channels, red green blue; transparency is dropped, not composited. kGrey: 1; of a JPEG
/// what it stores as brightness, of others luma as Pillow's convert("L"). kColorAlpha: 4, red green
/// blue alpha; alpha is resized like a colour.
enum class PixelMode : std::uint8_t { kColor, kGrey, kColorAlpha };
enum class Interpolation : std::uint8_t { kNearest, kBilinear, kBicubic };

struct ImageSize {
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  bool operator==(const ImageSize&) const = default;
};

/// What is made of an image, in this order: random resized crop; or resize, pad, crop; then flips,
/// augment, colour jitter, normalising.
struct ImageOptions {
  /// To exactly this size, whatever the aspect.
  std::optional<ImageSize> resize = {};
  /// The shorter side gets this length, the longer one follows: its length is
  /// floor(longer * this / shorter), as torchvision's Resize(int). Excludes `resize`.
  std::uint32_t resize_shorter = 0;
  /// After resize: the middle, offsets rounded as torchvision's CenterCrop; what the image lacks is
  /// zeros. Or, with `is_crop_random`, a place drawn at random.
  std::optional<ImageSize> crop = {};
  bool is_crop_random = false;
  /// A crop of random area and aspect, resized to this: as torchvision's RandomResizedCrop.
  /// Excludes `resize`, `resize_shorter`, `crop` and `pad`.
  std::optional<ImageSize> random_resized_crop = {};
  std::array<double, 2> scale = {0.08, 1.0};             ///< Of the area.
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};  ///< Width / height.
  double horizontal_flip = 0;                            ///< Probability.
  double vertical_flip = 0;                              ///< Probability.
  /// Left, top, right, bottom, in pixels, before the crop; zeros.
  std::array<std::uint32_t, 4> pad = {};
  /// As torchvision's ColorJitter: factors from [max(0, 1 - x), 1 + x], hue from [-x, x] of a turn;
  /// all zero: none. In random order.
  struct Jitter {
    double brightness = 0, contrast = 0, saturation = 0, hue = 0;
    bool operator==(const Jitter&) const = default;
  };
  Jitter jitter = {};
  /// RandAugment (Cubuk et al. 2019) as torchvision's: `operations` drawn of 14, at `magnitude` of
  /// 31; 0 operations: none.
  struct RandAugment {
    std::uint32_t operations = 0;
    std::uint32_t magnitude = 9;
    /// Of shears, shifts and turns: kNearest or kBilinear. What comes from outside is 0.
    Interpolation interpolation = Interpolation::kNearest;
  };
  RandAugment rand_augment = {};
  /// (pixel / 255 - mean) / stddev by channel (the first is used for grey). Needs a type of
  /// floating point. Empty: pixels stay 0 .. 255; for floating point they become 0 .. 1.
  std::optional<std::array<float, 3>> mean = {};
  std::optional<std::array<float, 3>> stddev = {};

  PixelType type = PixelType::kUint8;
  PixelLayout layout = PixelLayout::kHwc;
  PixelMode mode = PixelMode::kColor;
  Interpolation interpolation = Interpolation::kBilinear;  ///< Antialiased but for kNearest.
  /// Turns a photograph the way that its EXIF orientation says.
  bool applies_orientation = true;
  /// A JPEG may be decoded at a fraction of its size where what is resized stays at least twice as
  /// large as the result: much cheaper, a little softer than resizing all pixels.
  bool is_exact = false;
  /// A file that ends early or is damaged gives what there is, the rest grey. Else it is kCorrupt,
  /// where the end or the damage is in what is decoded: a crop does not look behind its last row.
  bool allows_truncated = false;
  /// Larger images are kCorrupt: a few KiB can claim to be gigabytes. Default: Pillow's limit.
  std::uint64_t max_pixels = 178'956'970;

  /// Size of what is delivered where it is the same for every image.
  std::optional<ImageSize> output_size() const noexcept;
};

/// JPEG, PNG, WebP and GIF (first frame), TIFF (first page), told apart by their content;
/// MDS's `pil` by the column's encoding. Where the options fix a size, the column is of fixed size:
/// shape (height, width, channels) or (channels, height, width); a grey one has 1 channel.
/// Otherwise each value has its own shape ("ndarray:<dtype>": the value begins with it). Errors:
/// kInvalidArgument (options that contradict each other: names them).
Result<std::shared_ptr<const Decode>> decode_image(const ImageOptions& options);

/// Arrays of one type.
struct ArrayType {
  std::string dtype;             ///< numpy's name: "float32".
  std::uint64_t item_bytes = 0;  ///< Of the dtype.
  std::vector<std::uint64_t> shape = {};
  std::uint64_t size_bytes() const noexcept;
};
/// A column of such arrays. \pre check_array_type().
OutputColumn array_column(const std::string& name, const ArrayType& type);
/// Errors: kInvalidArgument (no dtype, a side of 0, more than 1 TiB).
Status check_array_type(const ArrayType& type);

/// The bytes are read as another encoding (Column::encoding): "str", "json", "npy", "npz". Of the
/// first two, those that are not UTF-8 are kCorrupt; nothing else is looked at.
std::shared_ptr<const Decode> decode_as(std::string encoding);
/// Raw little-endian numbers in C order, every value of the same type; another length is kCorrupt.
Result<std::shared_ptr<const Decode>> decode_array(ArrayType type);
/// .npy files of one type, as a fixed column; another type in a file is kCorrupt. `descr`: numpy's
/// dtype.str ("<f4"), as the files' headers have it.
Result<std::shared_ptr<const Decode>> decode_npy(ArrayType type, std::string descr);

/// One feature of tf.train.Examples, and the column that it becomes.
struct TfFeature {
  enum class Kind : std::uint8_t { kBytes = 1, kFloat = 2, kInt64 = 3 };  ///< As in the records.
  std::string name;  ///< Of the feature and of the column.
  Kind kind = Kind::kBytes;
  /// Any number of values: a column "list:int64", "list:float32" or "list[bytes]"; a feature that
  /// is missing has none. Else as many as `shape` has, of kBytes one.
  bool is_list = false;
  std::vector<std::uint64_t> shape = {};  ///< Of numbers that are no list; empty: a single one.
  /// What stands for a feature that is missing: numbers as the column has them, or one value of
  /// bytes. nullopt: kCorrupt.
  std::optional<std::vector<std::byte>> missing = {};
  /// Of kBytes that is no list: what is made of the value.
  std::shared_ptr<const Decode> decode = nullptr;
};
/// Serialized tf.train.Examples: a column for each feature, in this order. Features that are not
/// named are passed over. Another kind or number of values than said is kCorrupt. Errors:
/// kInvalidArgument (no feature, one twice, what does not go together).
Result<std::shared_ptr<const Decode>> decode_tf_example(std::vector<TfFeature> features);

/// One msgpack object each (headrace/msgpack.h), checked here, with encoding "msgpack"; `is_numpy`:
/// "msgpack:numpy", where maps as msgpack-numpy writes them are arrays. Anything else is kCorrupt;
/// an extension type but timestamps is kUnsupported.
std::shared_ptr<const Decode> decode_msgpack(bool is_numpy);

struct AudioOptions {
  /// Sounds are cut or filled up with zeros to so many frames: a fixed column of shape (frames,
  /// channels). 0: each has its own length.
  std::uint64_t frames = 0;
  std::uint64_t channels = 1;     ///< Of a fixed column; other numbers in a file are kCorrupt.
  bool is_mono = false;           ///< The mean of all channels.
  std::uint32_t sample_rate = 0;  ///< Another one in a file is kCorrupt. 0: any.
};
/// WAV, FLAC, Ogg, AIFF, ... (libsndfile) to float32 in -1 .. 1, shape (frames, channels). Errors:
/// kInvalidArgument.
Result<std::shared_ptr<const Decode>> decode_audio(const AudioOptions& options);

}  // namespace headrace
