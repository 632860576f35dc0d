#include "headrace/loader.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "base/check.h"
#include "feed/channel.h"
#include "feed/fetcher.h"
#include "feed/memory_plan.h"
#include "feed/pipeline.h"
#include "feed/position.h"

namespace headrace {
namespace feed {
namespace {

/// Lanes give mixing, memory takes them: 32 a rank unless memory is short (docs/design/0003).

std::vector<std::uint32_t> block_samples(const Dataset& dataset) {
  std::vector<std::uint32_t> counts(dataset.block_count());
  for (std::uint32_t i = 0; i < counts.size(); ++i) counts[i] = dataset.block(i).sample_count;
  return counts;
}

Result<Selection> select_columns(const Dataset& dataset, const std::vector<std::string>& names) {
  const std::vector<Column>& columns = dataset.columns();
  Selection selection;
  selection.column_count = columns.size();
  for (std::size_t i = 0; names.empty() && i < columns.size(); ++i)
    selection.entries.push_back({&columns[i], i});
  for (const std::string& name : names) {
    const auto found = std::find_if(columns.begin(), columns.end(),
                                    [&](const Column& c) { return c.name == name; });
    if (found == columns.end()) {
      std::string known;
      for (const Column& column : columns) known += (known.empty() ? "" : ", ") + column.name;
      return Status(Code::kInvalidArgument,
                    "columns: '" + name + "' is not in " + dataset.url() + "; it has " + known);
    }
    selection.entries.push_back({&*found, static_cast<std::size_t>(found - columns.begin())});
  }
  return selection;
}

MemoryNeeds needs_of(const Dataset& dataset, const SlabSizes& sizes, const SlabPool& pool,
                     const LoaderOptions& options) {
  std::uint64_t raw_bytes = 0;
  MemoryNeeds needs;
  for (std::uint32_t i = 0; i < dataset.block_count(); ++i) {
    const Block block = dataset.block(i);
    raw_bytes += block.raw_bytes;
    needs.block_bytes =
        std::max(needs.block_bytes, sizes.charged_bytes(dataset, i, block.stored_bytes));
  }
  const std::uint64_t sample_bytes =
      raw_bytes / std::max<std::uint64_t>(dataset.sample_count(), 1) + 1;
  needs.limit_bytes = pool.limit_bytes();
  needs.batch_bytes = SlabPool::charged_bytes(options.batch_size * (sample_bytes + 9) +
                                              64 * (2 + 3 * dataset.columns().size()));
  needs.sparse_bytes = options.batch_size * SlabPool::charged_bytes(sample_bytes);
  needs.prefetch_batches = options.prefetch_batches;
  return needs;
}

Status check_options(const Dataset& dataset, const LoaderOptions& options) {
  const auto bad = [](std::string what) { return Status(Code::kInvalidArgument, std::move(what)); };
  if (dataset.sample_count() == 0) return bad(dataset.url() + " has no samples");
  if (options.world_size == 0 || options.rank >= options.world_size) {
    return bad("rank " + std::to_string(options.rank) + " is not below world_size " +
               std::to_string(options.world_size));
  }
  if (options.batch_size == 0) return bad("batch_size is 0");
  if (options.prefetch_batches < 1 || options.prefetch_batches > 1024) {
    return bad("prefetch_batches is " + std::to_string(options.prefetch_batches) +
               ", not in 1 .. 1024");
  }
  if (options.order != "headrace" && options.order != "sequential") {
    return bad("order '" + options.order + "' is unknown; there are headrace, sequential");
  }
  if (options.order == "sequential" && (options.lane_count > 1 || options.window_blocks > 1)) {
    return bad("lanes and windows belong to order headrace; order sequential has neither");
  }
  const std::uint64_t global = std::uint64_t{options.batch_size} * options.world_size;
  if (global > dataset.sample_count()) {
    return bad("a global batch of " + std::to_string(global) + " samples (batch_size " +
               std::to_string(options.batch_size) + " * world_size " +
               std::to_string(options.world_size) + ") is larger than the dataset: " +
               dataset.url() + " has " + std::to_string(dataset.sample_count()));
  }
  return {};
}

bool has_compressed_blocks(const Dataset& dataset) {
  for (std::uint32_t i = 0; i < dataset.shard_count(); ++i) {
    if (!dataset.shard(i).compression.empty()) return true;
  }
  return false;
}

std::uint32_t worker_count(const Dataset& dataset, const LoaderOptions& options) {
  if (!has_compressed_blocks(dataset)) return 0;
  if (options.worker_count > 0) return options.worker_count;
  const std::uint32_t cores = std::max(1U, std::thread::hardware_concurrency());
  return std::clamp(cores - 1, 1U, 4U);
}

class LoaderImpl final : public Loader {
 public:
  struct Start {
    std::shared_ptr<const Dataset> dataset;
    std::unique_ptr<Store> store;
    std::shared_ptr<SlabPool> pool;
    LoaderOptions options;
    Selection selection;
    MemoryShares shares;
    SlabSizes sizes;
    OrderSpec spec;
    std::vector<std::uint32_t> block_samples;
    std::shared_ptr<const EpochOrder> order;  ///< Of epoch 0.
  };

  explicit LoaderImpl(Start start)
      : dataset_(std::move(start.dataset)),
        options_(std::move(start.options)),
        clock_(options_.clock != nullptr ? *options_.clock : system_clock()),
        shares_(start.shares),
        block_samples_(std::move(start.block_samples)),
        created_(clock_.now()),
        waker_(std::make_shared<Waker>(std::move(start.pool))),
        channel_(clock_),
        spec_(std::move(start.spec)),
        order_(std::move(start.order)) {
    Store* store = start.store.get();
    fetcher_ = std::make_unique<Fetcher>(
        dataset_, std::move(start.store), waker_->pool(),
        Fetcher::Options{.read_timeout = options_.read_timeout,
                         .worker_count = worker_count(*dataset_, options_),
                         .clock = &clock_,
                         .sizes = start.sizes});
    pipeline_ = std::make_unique<Pipeline>(Pipeline::Parts{.dataset = dataset_,
                                                           .waker = waker_,
                                                           .fetcher = fetcher_.get(),
                                                           .channel = &channel_,
                                                           .clock = &clock_,
                                                           .selection = std::move(start.selection),
                                                           .shares = shares_,
                                                           .sizes = start.sizes});
    waker_->attach(store);
    thread_ = std::thread([this] { feed(); });
  }

  ~LoaderImpl() override {
    stop();
    thread_.join();
    waker_->detach();
    channel_.set_run(std::nullopt, 1);
  }

  Status start_epoch() override;
  Result<std::unique_ptr<Batch>> next(TimePoint until, std::stop_token stop) override;
  std::string state() const override;
  Status load_state(std::string_view json) override;
  std::uint64_t batches_left() const override;
  std::uint64_t epoch() const override {
    MutexLock lock(mutex_);
    return position_now().epoch;
  }
  Result<std::vector<std::int64_t>> sample_ids(std::uint64_t epoch,
                                               std::uint64_t batch_index) const override;
  MetricList stats() const override;
  OrderSpec order_spec() const override {
    MutexLock lock(mutex_);
    return spec_;
  }
  Status unread() override;
  bool is_starved() const noexcept override { return is_starved_.load(std::memory_order_relaxed); }
  const Dataset& dataset() const override { return *dataset_; }
  void stop() noexcept override {
    channel_.stop();
    fetcher_->wake();
  }

 private:
  void feed();
  BatchPlan plan_from(std::uint64_t t) const;
  /// Batches of this rank in a plan: one less than the plan's when its share of an uneven last
  /// batch is empty.
  std::uint64_t own_batches(const BatchPlan& plan) const;
  LoaderState state_at(const Position& position) const;
  Position position_now() const HEADRACE_REQUIRES(mutex_);
  Result<std::shared_ptr<const EpochOrder>> order_of(std::uint64_t epoch) const;
  void book(const BatchTimeline& timeline);

  const std::shared_ptr<const Dataset> dataset_;
  const LoaderOptions options_;
  Clock& clock_;
  const MemoryShares shares_;
  const std::vector<std::uint32_t> block_samples_;
  const TimePoint created_;
  const std::shared_ptr<Waker> waker_;
  Channel channel_;
  OrderSpec spec_;  ///< Changes only in load_state(), which excludes next().
  std::unique_ptr<Fetcher> fetcher_;
  std::unique_ptr<Pipeline> pipeline_;
  std::thread thread_;

  std::vector<WaitInterval> waits_;  ///< Of the batch to come; the caller of next() only.

  mutable Mutex mutex_;
  Position position_ HEADRACE_GUARDED_BY(mutex_);  ///< Where the current plan begins.
  BatchPlan plan_ HEADRACE_GUARDED_BY(mutex_);     ///< While is_running_.
  std::uint64_t delivered_ HEADRACE_GUARDED_BY(mutex_) =
      0;  ///< Batches of the plan that next() returned.
  bool is_running_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::atomic<bool> is_starved_{false};  // written by the feed thread; a hint, so relaxed
  bool has_ended_ HEADRACE_GUARDED_BY(mutex_) = false;  ///< next() said so; start_epoch() goes on.
  mutable std::shared_ptr<const EpochOrder> order_ HEADRACE_GUARDED_BY(mutex_);

  Counter batches_;
  Counter samples_;
  Counter delivered_bytes_;
  Counter first_batch_us_;
  Counter waited_us_;
  StallBook stalls_;
};

void LoaderImpl::feed() {
  std::uint64_t generation = 0;
  while (!channel_.is_stopped()) {
    bool has_changed = false;
    auto run = channel_.new_run(generation, has_changed);
    if (has_changed) pipeline_->begin(std::move(run), generation);
    const TimePoint until = pipeline_->step();
    is_starved_.store(pipeline_->is_starved(), std::memory_order_relaxed);
    fetcher_->poll(until);
  }
  // Here, because both belong to this thread. What next() left behind dies with the channel.
  pipeline_.reset();
  fetcher_->shut_down();
}

BatchPlan LoaderImpl::plan_from(std::uint64_t t) const {
  return {.segment = {.start = t,
                      .global_batch = std::uint64_t{options_.batch_size} * options_.world_size},
          .sample_count = dataset_->sample_count(),
          .rank = options_.rank,
          .world_size = options_.world_size,
          .epoch_end = options_.epoch_end};
}

std::uint64_t LoaderImpl::own_batches(const BatchPlan& plan) const {
  const std::uint64_t count = plan.batch_count();
  return count > 0 && plan.slots(count - 1).count == 0 ? count - 1 : count;
}

Result<std::shared_ptr<const EpochOrder>> LoaderImpl::order_of(std::uint64_t epoch) const {
  OrderSpec spec;
  {
    MutexLock lock(mutex_);
    if (order_ && order_->epoch() == epoch) return order_;
    spec = spec_;
  }
  HEADRACE_TRY_ASSIGN(auto order, EpochOrder::create(spec, block_samples_, epoch));
  MutexLock lock(mutex_);
  // A state with other lanes may have been loaded meanwhile; the rest of the spec never changes.
  const bool is_current = spec.lane_count == spec_.lane_count &&
                          spec.window_blocks == spec_.window_blocks &&
                          spec.bundle_lanes == spec_.bundle_lanes;
  if (is_current) order_ = order;
  return order;
}

Status LoaderImpl::start_epoch() {
  if (channel_.is_stopped()) return Status(Code::kCancelled, "the loader was stopped");
  std::uint64_t epoch = 0;
  {
    MutexLock lock(mutex_);
    has_ended_ = false;
    if (is_running_ && (delivered_ == 0 || delivered_ < own_batches(plan_))) return {};
    // All batches were taken, but nobody asked for the end (islice(loader, len(loader))).
    if (is_running_) position_ = {.epoch = position_.epoch + 1, .t = 0, .batches = 0};
    is_running_ = false;
    epoch = position_.epoch;
  }
  HEADRACE_TRY_ASSIGN(const auto order, order_of(epoch));
  Run run;
  {
    MutexLock lock(mutex_);
    plan_ = plan_from(position_.t);
    delivered_ = 0;
    is_running_ = true;
    run = {.order = order,
           .plan = plan_,
           .batch_count = own_batches(plan_),
           .batches_before = position_.batches,
           .generation = 0};
  }
  waits_.clear();
  channel_.set_run(std::move(run), shares_.ready_batches);
  fetcher_->wake();
  return {};
}

Result<std::unique_ptr<Batch>> LoaderImpl::next(TimePoint until, std::stop_token stop) {
  bool must_start = false;
  {
    MutexLock lock(mutex_);
    if (has_ended_) return std::unique_ptr<Batch>();
    must_start = !is_running_;
  }
  if (must_start) HEADRACE_TRY(start_epoch());
  {
    MutexLock lock(mutex_);
    if (delivered_ == own_batches(plan_)) {
      is_running_ = false;
      has_ended_ = true;
      position_ = {.epoch = position_.epoch + 1, .t = 0, .batches = 0};
      return std::unique_ptr<Batch>();
    }
  }
  WaitInterval waited;
  bool must_wake = false;
  std::optional<Delivery> delivery = channel_.take(until, stop, waited, must_wake);
  if (must_wake) fetcher_->wake();
  if (wait_length(waited).count() > 0) waits_.push_back(waited);
  if (!delivery) {
    if (channel_.is_stopped()) return Status(Code::kCancelled, "the loader was stopped");
    if (stop.stop_requested()) return Status(Code::kCancelled, "waiting for a batch was cancelled");
    return Status(Code::kDeadline, "no batch was ready in time");
  }
  book(delivery->timeline);
  if (!delivery->error.ok()) return std::move(delivery->error);
  std::unique_ptr<BatchImpl> batch = std::move(delivery->batch);
  if (batches_.value() == 0) {
    first_batch_us_.add(static_cast<std::uint64_t>(
        std::chrono::floor<Microseconds>(clock_.now() - created_).count()));
  }
  batches_.add();
  samples_.add(batch->count());
  delivered_bytes_.add(batch->byte_count());
  MutexLock lock(mutex_);
  HEADRACE_DCHECK(batch->identity().plan_index == delivered_);
  ++delivered_;
  return std::unique_ptr<Batch>(std::move(batch));
}

void LoaderImpl::book(const BatchTimeline& timeline) {
  for (const WaitInterval& wait : waits_) {
    book_wait(stalls_, wait, timeline);
    waited_us_.add(static_cast<std::uint64_t>(wait_length(wait).count()));
  }
  waits_.clear();
}

Position LoaderImpl::position_now() const {
  if (!is_running_ || delivered_ == 0) return position_;
  if (delivered_ == plan_.batch_count())
    return {.epoch = position_.epoch + 1, .t = 0, .batches = 0};
  return {.epoch = position_.epoch,
          .t = plan_.t_after(delivered_ - 1),
          .batches = position_.batches + delivered_};
}

LoaderState LoaderImpl::state_at(const Position& position) const {
  return {.fingerprint = dataset_->fingerprint(),
          .order = spec_,
          .position = position,
          .epoch_end = options_.epoch_end,
          .global_batch = std::uint64_t{options_.batch_size} * options_.world_size};
}

std::string LoaderImpl::state() const {
  MutexLock lock(mutex_);
  return write_state(state_at(position_now()));
}

Status LoaderImpl::load_state(std::string_view json) {
  HEADRACE_TRY_ASSIGN(const LoaderState state, read_state(json));
  HEADRACE_TRY(check_state(state, state_at({}), dataset_->sample_count()));
  Position position = state.position;
  if (position.t == dataset_->sample_count())
    position = {.epoch = position.epoch + 1, .t = 0, .batches = 0};
  // Proves that the spec is usable before anything changes.
  HEADRACE_TRY_ASSIGN(auto order, EpochOrder::create(state.order, block_samples_, position.epoch));
  channel_.set_run(std::nullopt, shares_.ready_batches);
  fetcher_->wake();
  MutexLock lock(mutex_);
  spec_ = state.order;
  order_ = std::move(order);
  position_ = position;
  is_running_ = false;
  has_ended_ = false;
  return {};
}

Status LoaderImpl::unread() {
  {
    MutexLock lock(mutex_);
    if (!is_running_ || delivered_ == 0) return {};
    if (delivered_ > 1) {
      position_ = {.epoch = position_.epoch,
                   .t = plan_.t_after(delivered_ - 2),
                   .batches = position_.batches + delivered_ - 1};
    }
    is_running_ = false;
    has_ended_ = false;
  }
  channel_.set_run(std::nullopt, shares_.ready_batches);
  fetcher_->wake();
  return {};
}

std::uint64_t LoaderImpl::batches_left() const {
  MutexLock lock(mutex_);
  if (is_running_) return own_batches(plan_) - delivered_;
  return own_batches(plan_from(position_.t));
}

Result<std::vector<std::int64_t>> LoaderImpl::sample_ids(std::uint64_t epoch,
                                                         std::uint64_t batch_index) const {
  const BatchPlan plan = plan_from(0);
  if (batch_index >= own_batches(plan)) {
    return Status(Code::kNotFound, "batch " + std::to_string(batch_index) +
                                       " of an epoch that has " +
                                       std::to_string(own_batches(plan)) + " on this rank");
  }
  HEADRACE_TRY_ASSIGN(const auto order, order_of(epoch));
  const BatchPlan::Slots slots = plan.slots(batch_index);
  std::vector<std::int64_t> ids(slots.count);
  for (std::uint32_t i = 0; i < slots.count; ++i) {
    ids[i] = static_cast<std::int64_t>(order->dataset_position(slots.sample(i), plan.segment));
  }
  return ids;
}

MetricList LoaderImpl::stats() const {
  MetricList list;
  append_metric(list, "loader.batches", batches_.value());
  append_metric(list, "loader.samples", samples_.value());
  append_metric(list, "loader.delivered_bytes", delivered_bytes_.value());
  append_metric(list, "loader.first_batch_us", first_batch_us_.value());
  append_metric(list, "loader.waited_us", waited_us_.value());
  stalls_.append_to(list,
                    [](std::size_t i) { return stall_cause_name(static_cast<StallCause>(i)); });
  const SlabPool& pool = waker_->pool();
  append_metric(list, "pool.limit_bytes", pool.limit_bytes());
  append_metric(list, "pool.used_bytes", pool.used_bytes());
  append_metric(list, "pool.committed_bytes", pool.committed_bytes());
  append_metric(list, "pool.peak_bytes", pool.peak_bytes());
  fetcher_->append_metrics(list);
  return list;
}

}  // namespace
}  // namespace feed

Result<std::unique_ptr<Loader>> Loader::create(std::shared_ptr<const Dataset> dataset,
                                               std::unique_ptr<Store> store,
                                               std::shared_ptr<SlabPool> pool,
                                               const LoaderOptions& options) {
  using namespace feed;
  HEADRACE_TRY(check_options(*dataset, options));
  HEADRACE_TRY_ASSIGN(Selection selection, select_columns(*dataset, options.columns));
  const SlabSizes sizes = SlabSizes::of(*dataset);
  HEADRACE_TRY_ASSIGN(const MemoryShares shares,
                      share_memory(needs_of(*dataset, sizes, *pool, options)));
  std::vector<std::uint32_t> samples = block_samples(*dataset);
  OrderSpec spec;
  spec.id = options.order;
  spec.seed = options.seed;
  spec.block_table_digest = block_table_digest(samples);
  if (options.order == "sequential") {
    spec.window_blocks = 1;
  } else {
    const bool is_compressed = has_compressed_blocks(*dataset);
    spec.window_blocks =
        options.window_blocks > 0 ? options.window_blocks : (is_compressed ? 1 : 2);
    spec.lane_count = 1;
    HEADRACE_TRY_ASSIGN(const auto order, EpochOrder::create(spec, samples, 0));
    const LaneChoice choice =
        choose_lanes({.global_batch = std::uint64_t{options.batch_size} * options.world_size,
                      .world_size = options.world_size,
                      .sample_count = dataset->sample_count(),
                      .block_count = dataset->block_count(),
                      .window_blocks = spec.window_blocks,
                      .window_bytes = Pipeline::largest_window_bytes(*dataset, *order, sizes),
                      .memory_bytes = pool->limit_bytes() - pool->limit_bytes() / kBatchShare});
    spec.lane_count = choice.lane_count;
    spec.bundle_lanes = choice.bundle_lanes;
    if (options.lane_count > 0) {
      spec.lane_count = options.lane_count;
      spec.bundle_lanes = bundle_of(options.lane_count);
    }
  }
  HEADRACE_TRY_ASSIGN(auto first_epoch, EpochOrder::create(spec, samples, 0));
  return std::unique_ptr<Loader>(
      std::make_unique<LoaderImpl>(LoaderImpl::Start{.dataset = std::move(dataset),
                                                     .store = std::move(store),
                                                     .pool = std::move(pool),
                                                     .options = options,
                                                     .selection = std::move(selection),
                                                     .shares = shares,
                                                     .sizes = sizes,
                                                     .spec = std::move(spec),
                                                     .block_samples = std::move(samples),
                                                     .order = std::move(first_epoch)}));
}

}  // namespace headrace
