// The text of a mixture's state, and what a saved one makes of a mixture that was opened anew.
//
// The state is the history, not the counts: parts, and all weights with the batch from which they
// hold. Counts follow from it (mixture_schedule.cc), so a state restored in another world cannot
// disagree with itself. All of it must stay below kMixtureStateBytes, hence numbers to the base 36
// and digests of 24 bits: enough to notice a wrong dataset, not to resist one made on purpose.
//
// Invariants:
// - A MixtureSource never changes; restored() and changed() make another one.
// - In restored() the state wins: groups, batch, lanes, windows, version and old weights are the
//   run's, since they decide which samples were delivered. Only where sources were added, our
//   weights hold from the next whole batch on.
// - What a reader takes from a state is bounded before it is multiplied or used as a size.
#include <algorithm>
#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "base/mutex.h"
#include "headrace/mixture.h"
#include "order/order_math.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

Status bad(std::string what) {
  return Status(Code::kInvalidArgument, "mixture: " + std::move(what));
}

// Four digits hold the largest weight, 65,536, with room: 36^4 is 1.7 million.
// Text of a state: numbers to the base 36, weights in four digits each.
constexpr std::size_t kWeightDigits = 4;
constexpr std::size_t kDigestDigits = 6;

std::string digits_of(std::uint64_t value, int base, std::size_t least) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value, base);
  static_cast<void>(error);  // 64 places hold any number.
  const std::string digits(text, end);
  return std::string(least > digits.size() ? least - digits.size() : 0, '0') + digits;
}

bool parse_digits(std::string_view text, int base, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

bool is_shuffled_order(const OrderSpec& order) { return order.id != "sequential"; }

/// What a state says of a part: enough to notice another dataset or block table, and whether it is
/// shuffled.
std::string digest_of(const std::string& fingerprint, const OrderSpec& order, bool is_shuffled) {
  std::uint64_t digest = order_math::mix(fingerprint.size() + order_math::kGolden);
  for (const char c : fingerprint) digest = order_math::mix(digest + static_cast<unsigned char>(c));
  digest = order_math::mix(digest + order.block_table_digest);
  if (!is_shuffled) digest = order_math::mix(digest + 1);
  return digits_of(digest >> (64 - 4 * kDigestDigits), 16, kDigestDigits);
}

/// The part of a state that says where the mixture stands, read back.
struct Saved {
  MixtureSpec spec;  ///< Parts have lanes and windows only.
  std::vector<std::string> digests;
};

class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  std::uint64_t number(const char* name, std::uint64_t least, std::uint64_t most) {
    const auto found = json_.find(name);
    if (found == json_.end() || !found->is_number_unsigned()) return fail(name, "a whole number");
    const auto value = found->get<std::uint64_t>();
    return value < least || value > most ? fail(name, "in range") : value;
  }
  std::string text(const char* name) {
    const auto found = json_.find(name);
    if (found != json_.end() && found->is_string()) return found->get<std::string>();
    fail(name, "a string");
    return {};
  }
  std::uint64_t fail(const char* name, const char* wanted) {
    if (status_.ok())
      status_ = bad(std::string("the state's field '") + name + "' is missing or not " + wanted);
    return 0;
  }
  Status take() { return std::move(status_); }

 private:
  const Json& json_;
  Status status_;
};

void read_parts(Reader& reader, std::uint32_t window_blocks, Saved& saved) {
  const std::string text = reader.text("parts");
  for (std::string_view word : words_of(text)) {
    std::uint64_t lanes = 0;
    std::uint64_t window = window_blocks;
    const std::size_t at = word.find('w');
    const bool is_good =
        word.size() > kDigestDigits &&
        parse_digits(word.substr(kDigestDigits, at - kDigestDigits), 10, lanes) &&
        (at == std::string_view::npos || parse_digits(word.substr(at + 1), 10, window));
    if (!is_good || lanes == 0 || lanes > 1 << 20 || window == 0 || window > 0xffff'ffffU) {
      reader.fail("parts", "a list of digests and lanes");
      return;
    }
    saved.digests.emplace_back(word.substr(0, kDigestDigits));
    saved.spec.parts.emplace_back();
    saved.spec.parts.back().order.lane_count =
        static_cast<std::uint32_t>(lanes) * saved.spec.groups;
    saved.spec.parts.back().order.window_blocks = static_cast<std::uint32_t>(window);
  }
}

void read_changes(Reader& reader, MixtureSpec& spec) {
  const std::string text = reader.text("changes");
  for (const std::string_view word : words_of(text)) {
    const std::size_t colon = word.find(':');
    std::uint64_t batch = 0;
    bool is_good = colon != std::string_view::npos &&
                   parse_digits(word.substr(0, colon), 10, batch) &&
                   batch < std::uint64_t{1} << 40 && (word.size() - colon - 1) % kWeightDigits == 0;
    MixtureChange change{.first_sample = batch * spec.batch, .weights = {}};
    for (std::size_t i = colon + 1; is_good && i < word.size(); i += kWeightDigits) {
      std::uint64_t weight = 0;
      is_good = parse_digits(word.substr(i, kWeightDigits), 36, weight);
      change.weights.push_back(static_cast<std::uint32_t>(weight));
    }
    if (!is_good) {
      reader.fail("changes", "a list of batches and weights");
      return;
    }
    spec.changes.push_back(std::move(change));
  }
}

Result<Saved> read_saved(const Json& json, std::uint32_t window_blocks) {
  Reader reader(json);
  Saved saved;
  MixtureSpec& spec = saved.spec;
  constexpr std::uint64_t kMost = std::uint64_t{1} << 53;
  spec.groups = static_cast<std::uint32_t>(reader.number("groups", 1, kMaxMixtureGroups));
  spec.batch = reader.number("batch", 1, std::uint64_t{1} << 24);
  spec.epoch_samples = reader.number("epoch_samples", 1, kMost);
  const std::string batching = reader.text("batching");
  HEADRACE_TRY(reader.take());
  HEADRACE_TRY_ASSIGN(spec.batching, parse_mixture_batching(batching));
  read_parts(reader, window_blocks, saved);
  if (json.contains("shares")) {
    const std::string text = reader.text("shares");
    for (const std::string_view word : words_of(text)) {
      spec.epoch_shares.emplace_back();
      if (!parse_digits(word, 36, spec.epoch_shares.back()))
        reader.fail("shares", "a list of numbers");
    }
  } else {
    read_changes(reader, spec);
  }
  HEADRACE_TRY(reader.take());
  return saved;
}

Json json_of(const MixtureSpec& spec, std::span<const std::string> digests,
             std::uint32_t window_blocks) {
  Json json;
  json["batching"] = mixture_batching_name(spec.batching);
  json["groups"] = spec.groups;
  json["batch"] = spec.batch;
  json["epoch_samples"] = spec.epoch_samples;
  std::string parts;
  for (std::size_t i = 0; i < spec.parts.size(); ++i) {
    const OrderSpec& order = spec.parts[i].order;
    parts += (i > 0 ? " " : "") + digests[i] + std::to_string(order.lane_count / spec.groups);
    if (order.window_blocks != window_blocks) parts += "w" + std::to_string(order.window_blocks);
  }
  json["parts"] = parts;
  std::string text;
  for (const std::uint64_t share : spec.epoch_shares)
    text += (text.empty() ? "" : " ") + digits_of(share, 36, 1);
  for (const MixtureChange& change : spec.changes) {
    text += (text.empty() ? "" : " ") + std::to_string(change.first_sample / spec.batch) + ":";
    for (const std::uint32_t weight : change.weights) text += digits_of(weight, 36, kWeightDigits);
  }
  json[spec.epoch_shares.empty() ? "changes" : "shares"] = text;
  return json;
}

/// Sources beyond the end have 0.
bool are_equal(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b) {
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if ((i < a.size() ? a[i] : 0) != (i < b.size() ? b[i] : 0)) return false;
  }
  return true;
}

struct Identity {
  std::vector<std::string> names;
  std::vector<MixturePrints> prints;
  std::vector<std::string> digests;
};

class MixtureSourceImpl final : public MixtureSource {
 public:
  MixtureSourceImpl(std::shared_ptr<const MixtureSpec> spec, Identity identity,
                    std::shared_ptr<const MixtureSchedule> schedule,
                    std::shared_ptr<const MixtureOrder> first)
      : mixture_(std::move(spec)),
        identity_(std::move(identity)),
        schedule_(std::move(schedule)),
        last_(std::move(first)),
        spec_(last_->spec()) {
    // Sources may be added to a run: what its state must match as a whole is the first source, and
    // restored() looks at each.
    spec_.block_table_digest = mixture_->parts.front().order.block_table_digest;
  }

  OrderSpec spec() const override { return spec_; }
  bool continues(std::uint32_t version) const override {
    return version >= 1 && version <= kMixtureVersion;
  }
  const MixtureSpec& mixture() const noexcept override { return *mixture_; }
  const std::vector<std::string>& names() const noexcept override { return identity_.names; }
  const MixtureSchedule& schedule() const noexcept override { return *schedule_; }

  Result<OrderPlan> plan(const OrderQuery& query, const std::stop_token&) const override {
    if (query.t > mixture_->epoch_samples)
      return bad("t is " + std::to_string(query.t) + ", more than the epoch's " +
                 std::to_string(mixture_->epoch_samples) + " samples");
    if (query.t == mixture_->epoch_samples) return OrderPlan();
    HEADRACE_TRY_ASSIGN(auto order, order_of(query.epoch));
    return OrderPlan{.order = std::move(order), .start = query.t};
  }

  std::string state_extra(std::uint64_t, std::uint64_t) const override {
    Json json;
    json["mixture"] = json_of(*mixture_, identity_.digests, spec_.window_blocks);
    return json.dump();
  }

  Result<std::shared_ptr<const OrderSource>> restored(const OrderSpec& saved,
                                                      std::string_view state) const override;
  Result<std::shared_ptr<const MixtureSource>> changed(
      std::uint64_t tau, std::span<const double> proportions) const override;

 private:
  Result<std::shared_ptr<const EpochOrder>> order_of(std::uint64_t epoch) const
      HEADRACE_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (last_->epoch() == epoch) return std::shared_ptr<const EpochOrder>(last_);
    }
    // Made without the lock: two threads may make the same order, which is harmless; waiting is
    // not.
    HEADRACE_TRY_ASSIGN(auto order, MixtureOrder::create(schedule_, mixture_, epoch));
    MutexLock lock(mutex_);
    last_ = order;
    return std::shared_ptr<const EpochOrder>(std::move(order));
  }
  Status check_parts(const Saved& saved) const;

  const std::shared_ptr<const MixtureSpec> mixture_;
  const Identity identity_;
  const std::shared_ptr<const MixtureSchedule> schedule_;
  mutable Mutex mutex_;
  mutable std::shared_ptr<const MixtureOrder> last_ HEADRACE_GUARDED_BY(mutex_);
  OrderSpec spec_;
};

/// Each group has a lane of its own in every source.
Status check_groups(const MixturePart& part, const std::string& name, std::uint32_t groups) {
  const auto samples =
      std::accumulate(part.block_samples.begin(), part.block_samples.end(), std::uint64_t{0});
  if (samples >= groups) return {};
  return bad("source '" + name + "' has " + std::to_string(samples) +
             " samples, fewer than the run's " + std::to_string(groups) +
             " groups: it can be added to a run that begins with groups=" +
             std::to_string(std::bit_floor(samples)) + " or less");
}

Result<std::shared_ptr<const MixtureSource>> make_source(MixtureSpec spec, Identity identity) {
  HEADRACE_TRY_ASSIGN(auto schedule, MixtureSchedule::create(spec));
  auto shared = std::make_shared<const MixtureSpec>(std::move(spec));
  HEADRACE_TRY_ASSIGN(auto order, MixtureOrder::create(schedule, shared, 0));
  const std::size_t bytes =
      json_of(*shared, identity.digests, order->spec().window_blocks).dump().size();
  if (bytes > kMixtureStateBytes)
    return bad("its part of the state would take " + std::to_string(bytes) + " bytes, more than " +
               std::to_string(kMixtureStateBytes) + ": " + std::to_string(shared->parts.size()) +
               " sources and " + std::to_string(shared->changes.size()) +
               " changes of weights are too many together");
  return std::shared_ptr<const MixtureSource>(std::make_shared<const MixtureSourceImpl>(
      std::move(shared), std::move(identity), std::move(schedule), std::move(order)));
}

Status MixtureSourceImpl::check_parts(const Saved& saved) const {
  const std::size_t count = saved.digests.size();
  if (count == 0 || count > identity_.digests.size())
    return bad("the state has " + std::to_string(count) + " sources, here are " +
               std::to_string(identity_.digests.size()) + ": sources may be added, not left out");
  for (std::size_t i = 0; i < count; ++i) {
    const MixturePrints& prints = identity_.prints[i];
    const OrderSpec& order = mixture_->parts[i].order;
    const bool is_shuffled = is_shuffled_order(order);
    const auto is_of = [&](bool shuffled) {
      // A state may name the dataset by its content or by its versions; either is the same
      // dataset.
      return saved.digests[i] == digest_of(prints.content, order, shuffled) ||
             saved.digests[i] == digest_of(prints.versions, order, shuffled);
    };
    if (is_of(is_shuffled)) continue;
    if (is_of(!is_shuffled))
      return bad(
          "the state is of a mixture that is " +
          std::string(is_shuffled ? "not shuffled, this one is" : "shuffled, this one is not") +
          ": open it with the same shuffle=");
    return bad("source " + std::to_string(i) + ", '" + identity_.names[i] +
               "', is another dataset than in the state, has changed, or was opened with another "
               "block_bytes; sources of a state come first, in its order");
  }
  return {};
}

Result<std::shared_ptr<const OrderSource>> MixtureSourceImpl::restored(
    const OrderSpec&, std::string_view state) const {
  const auto json = Json::parse(state, nullptr, false);
  if (!json.is_object() || !json.contains("mixture") || !json["mixture"].is_object())
    return bad("the state's field 'mixture' is missing or not an object");
  Reader fields(json);
  const std::uint64_t version = fields.number("order_version", 1, kMixtureVersion);
  const std::uint64_t window_blocks = fields.number("window_blocks", 1, 0xffff'ffffU);
  const std::uint64_t epoch = fields.number("epoch", 0, std::uint64_t{1} << 40);
  const std::uint64_t t = fields.number("t", 0, std::uint64_t{1} << 53);
  HEADRACE_TRY(fields.take());
  HEADRACE_TRY_ASSIGN(Saved saved,
                      read_saved(json["mixture"], static_cast<std::uint32_t>(window_blocks)));
  HEADRACE_TRY(check_parts(saved));
  if (epoch > (std::uint64_t{1} << 62) / saved.spec.epoch_samples)
    return bad("the state's epoch is out of range");
  MixtureSpec spec = *mixture_;
  spec.version = static_cast<std::uint32_t>(version);
  spec.groups = saved.spec.groups;
  spec.batch = saved.spec.batch;
  spec.batching = saved.spec.batching;
  spec.epoch_samples = saved.spec.epoch_samples;
  spec.epoch_shares = std::move(saved.spec.epoch_shares);
  const std::size_t known = saved.spec.parts.size();
  for (std::size_t i = 0; i < spec.parts.size(); ++i) {
    OrderSpec& order = spec.parts[i].order;
    if (i < known) {
      order.lane_count = saved.spec.parts[i].order.lane_count;
      order.window_blocks = saved.spec.parts[i].order.window_blocks;
    } else if (is_shuffled_order(order)) {
      HEADRACE_TRY(check_groups(spec.parts[i], identity_.names[i], spec.groups));
      order.lane_count = std::max(order.lane_count / spec.groups, 1U) * spec.groups;
    }
  }
  if (known < spec.parts.size()) {
    if (!spec.epoch_shares.empty() || !mixture_->epoch_shares.empty())
      return bad(
          "sources can be added where there are weights, not where an epoch has exact "
          "numbers of samples");
    // Our weights begin where the state's run stands.
    const std::uint64_t now =
        (epoch * spec.epoch_samples + t + spec.batch - 1) / spec.batch * spec.batch;
    std::erase_if(saved.spec.changes, [&](const auto& c) { return c.first_sample >= now; });
    for (const MixtureChange& ours : mixture_->changes) {
      // Ours count in batches of ours.
      const std::uint64_t first = ours.first_sample / mixture_->batch * spec.batch;
      MixtureChange change{.first_sample = std::max(first, now), .weights = ours.weights};
      if (!saved.spec.changes.empty() &&
          saved.spec.changes.back().first_sample == change.first_sample)
        saved.spec.changes.pop_back();
      // Weights that hold already go on where their table stands, and take no room in the state.
      if (saved.spec.changes.empty() ||
          !are_equal(saved.spec.changes.back().weights, change.weights))
        saved.spec.changes.push_back(std::move(change));
    }
  }
  spec.changes = std::move(saved.spec.changes);
  HEADRACE_TRY_ASSIGN(auto source, make_source(std::move(spec), identity_));
  return std::shared_ptr<const OrderSource>(std::move(source));
}

Result<std::shared_ptr<const MixtureSource>> MixtureSourceImpl::changed(
    std::uint64_t tau, std::span<const double> proportions) const {
  if (!mixture_->epoch_shares.empty())
    return bad("weights cannot change where an epoch has exact numbers of samples");
  if (proportions.size() != mixture_->parts.size())
    return bad(std::to_string(proportions.size()) + " weights for " +
               std::to_string(mixture_->parts.size()) + " sources");
  HEADRACE_TRY_ASSIGN(auto weights, mixture_weights(proportions, identity_.names));
  MixtureSpec spec = *mixture_;
  const std::uint64_t first = boundary(tau);
  std::erase_if(spec.changes, [&](const auto& change) { return change.first_sample >= first; });
  spec.changes.push_back({first, std::move(weights)});
  return make_source(std::move(spec), identity_);
}

}  // namespace

Result<std::shared_ptr<const MixtureSource>> MixtureSource::create(
    MixtureSpec spec, std::vector<std::string> names, std::vector<MixturePrints> prints) {
  if (names.size() != spec.parts.size() || prints.size() != spec.parts.size())
    return bad("names and fingerprints are not one for each source");
  Identity identity{std::move(names), std::move(prints), {}};
  for (std::size_t i = 0; i < spec.parts.size(); ++i) {
    spec.parts[i].name = identity.names[i];
    identity.digests.push_back(digest_of(identity.prints[i].content, spec.parts[i].order,
                                         is_shuffled_order(spec.parts[i].order)));
  }
  return make_source(std::move(spec), std::move(identity));
}

}  // namespace headrace
