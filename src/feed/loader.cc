// Two threads meet here. The feed thread owns pipeline and fetcher and runs feed(); the caller of
// next() owns the position. They share the channel, which hands a run down (with a generation, so
// that batches of an old run are not taken for the new one's) and finished batches up.
//
// Invariants:
// - Where a run stands is position_ (where its plan begins) and delivered_ (what next() returned
//   of it). What was read ahead or lies in the channel is in neither; so a state says what the
//   training loop has.
// - A state, source or seek is proved by plan_at() before anything changes: a refused one leaves
//   the loader as it was.
// - mutex_ is never held while waiting for a batch or for a plan, which may have to build an
//   order.
// - After the last batch position_now() is in the next epoch, yet next() still has to say once
//   that the epoch has ended: has_ended_ remembers that across go_to().
// - The pipeline dies before the workers, these before the fetcher shuts down: each uses what
//   follows.
#include "headrace/loader.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "base/thread_pool.h"
#include "feed/block_needs.h"
#include "feed/finish/channel.h"
#include "feed/forecast.h"
#include "feed/loader_options.h"
#include "feed/pipeline.h"
#include "feed/plan/stand_ins.h"
#include "feed/residency/fetcher.h"
#include "feed/residency/memory_plan.h"
#include "feed/slow_batches.h"
#include "feed/state/position.h"
#include "io/pool_metrics.h"

namespace headrace {
namespace feed {
namespace {

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
    std::shared_ptr<const OrderSource> source;
    StandIns::Options stand_ins;
  };
  /// Batches from a place of an epoch on.
  struct Planned {
    std::shared_ptr<const EpochOrder> order;  ///< nullptr: there are none.
    BatchPlan plan;
    std::uint64_t epoch = 0;
    std::uint64_t before = 0;  ///< t at place 0 of the order: not 0 for a list that begins later.
    std::uint64_t t_after(std::uint64_t k) const noexcept { return before + plan.t_after(k); }
  };

  explicit LoaderImpl(Start start)
      : dataset_(std::move(start.dataset)),
        options_(std::move(start.options)),
        clock_(options_.clock != nullptr ? *options_.clock : system_clock()),
        shares_(start.shares),
        created_(clock_.now()),
        selection_(make_selection(std::move(start.selection))),
        waker_(std::make_shared<Waker>(std::move(start.pool))),
        channel_(clock_),
        quarantine_digest_(quarantine_digest(joined(options_.quarantine))),
        stand_ins_(*dataset_, std::move(start.stand_ins)),
        source_(std::move(start.source)) {
    Store* store = start.store.get();
    forecast_.emplace(dataset_, *store, selection_->values);
    // Each read and each batch is at most once in the queue; memory bounds their number long before
    // this.
    constexpr std::size_t kQueueCapacity = 1 << 16;
    if (const std::uint32_t count = worker_count(*dataset_, options_); count > 0)
      workers_ = std::make_unique<ThreadPool>(count, kQueueCapacity);
    fetcher_ = std::make_unique<Fetcher>(
        dataset_, std::move(start.store), waker_->pool(),
        Fetcher::Options{.read_timeout = options_.read_timeout,
                         .large_request_bytes = options_.large_request_bytes,
                         .workers = workers_.get(),
                         .clock = &clock_,
                         .sizes = start.sizes,
                         .workspace_bytes = shares_.workspace_bytes});
    kept_ = std::make_unique<KeptBlocks>(*dataset_, *fetcher_);
    pipeline_ = std::make_unique<Pipeline>(
        FeedParts{.dataset = dataset_,
                  .waker = waker_,
                  .fetcher = fetcher_.get(),
                  .kept = kept_.get(),
                  .keeps_blocks = options_.keep_in_memory && !store->wants_foresight(),
                  .spared_reads = &spared_reads_,
                  .channel = &channel_,
                  .clock = &clock_,
                  .selection = selection_,
                  .shares = shares_,
                  .sizes = start.sizes,
                  .stand_ins = &stand_ins_,
                  .reads_objects_singly = are_samples_objects(*dataset_),
                  .are_singles_dear = are_singles_dear(*dataset_, fetcher_->is_local()),
                  .wanted_memory_bytes = &wanted_memory_bytes_,
                  .fill_memory_bytes = &fill_memory_bytes_,
                  .shares_batches = &shares_batches_},
        workers_.get(),
        finishes_on_workers(options_) ? options_.hand_over_bytes
                                      : std::numeric_limits<std::uint64_t>::max());
    waker_->attach(store);
    thread_ = std::thread([this] { feed(); });
  }

  ~LoaderImpl() override {
    stop();
    forecast_.reset();
    thread_.join();
    waker_->detach();
    channel_.set_run(std::nullopt, 1);
  }

  Status start_epoch(const std::stop_token& stop) override;
  Result<std::unique_ptr<Batch>> next(TimePoint until, std::stop_token stop) override;
  bool is_ready() const override;
  std::string state() const override { return state_later()(); }
  std::function<std::string()> state_later() const override;
  std::uint32_t share_batches(std::uint32_t wanted) override;
  Status load_state(std::string_view json, const std::stop_token& stop) override;
  Status seek(std::uint64_t epoch, std::uint64_t batch, const std::stop_token& stop) override;
  Result<std::uint64_t> batches_left(const std::stop_token& stop) const override;
  std::uint64_t epoch() const override {
    MutexLock lock(mutex_);
    return position_now().epoch;
  }
  Result<std::vector<std::int64_t>> sample_ids(std::uint64_t epoch, std::uint64_t batch_index,
                                               const std::stop_token& stop) const override;
  std::vector<BadSample> bad_samples() const override { return stand_ins_.report(); }
  MetricList stats() const override;
  OrderSpec order_spec() const override { return source()->spec(); }
  Result<double> lane_readers(const std::stop_token& stop) const override;
  Status set_order_source(std::shared_ptr<const OrderSource> source,
                          const std::stop_token& stop) override;
  Result<std::uint64_t> epoch_batches(const std::stop_token& stop) const override;
  Status unread() override;
  bool has_ended() const override;
  bool has_taken_all() const override;
  void end_epoch() override;
  bool is_ahead() const override;
  Result<std::vector<std::uint64_t>> block_needs(std::uint64_t epochs, std::uint32_t first_rank,
                                                 std::uint32_t ranks,
                                                 const std::stop_token& stop) const override;
  bool is_starved() const noexcept override { return is_starved_.load(std::memory_order_relaxed); }
  const Dataset& dataset() const override { return *dataset_; }
  const BatchSchema& schema() const override { return selection_->schema; }
  void stop() noexcept override {
    stop_.request_stop();
    channel_.stop();
    fetcher_->wake();
  }

 private:
  void feed();
  std::shared_ptr<const OrderSource> source() const {
    MutexLock lock(mutex_);
    return source_;
  }
  std::uint64_t global_batch() const noexcept {
    return std::uint64_t{options_.batch_size} * options_.world_size;
  }
  Result<Planned> plan_at(const OrderSource& source, std::uint64_t epoch, std::uint64_t t,
                          const std::stop_token& stop) const;
  /// Batches of this rank in a plan: one less than the plan's when its share of an uneven last
  /// batch is empty.
  static std::uint64_t own_batches(const BatchPlan& plan);
  Run run_of(const Planned& planned, std::uint64_t batches_before) const;
  bool is_last(const Planned& planned) const noexcept {
    return options_.epoch_count > 0 && planned.epoch + 1 >= options_.epoch_count;
  }
  /// The plan of the next epoch where it is known that it will be taken, and worth reading ahead.
  std::optional<Planned> plan_following(const OrderSource& source, const Planned& planned,
                                        const std::stop_token& stop) const;
  LoaderState state_at(const Position& position, const OrderSource& source) const;
  /// Stops the run; the next one begins at `position`. `has_ended`: after start_epoch() only.
  void go_to(const Position& position, std::shared_ptr<const OrderSource> source,
             bool has_ended = false);
  Position position_now() const HEADRACE_REQUIRES(mutex_);
  /// All batches of the plan were taken, and position_now() is in the next epoch.
  bool is_plan_over() const HEADRACE_REQUIRES(mutex_) {
    return is_running_ && delivered_ > 0 && delivered_ == planned_.plan.batch_count();
  }
  Result<std::unique_ptr<Batch>> take_batch(Delivery delivery);
  void book(const BatchTimeline& timeline);

  std::shared_ptr<const Selection> make_selection(Selection selection) const;

  const std::shared_ptr<const Dataset> dataset_;
  const LoaderOptions options_;
  Clock& clock_;
  const MemoryShares shares_;
  const TimePoint created_;
  const std::shared_ptr<const Selection> selection_;
  const std::shared_ptr<Waker> waker_;
  Channel channel_;
  const std::string quarantine_digest_;
  std::stop_source stop_;  ///< Of the whole loader: for those that wait for an order.
  StandIns stand_ins_;
  std::atomic<std::uint64_t> wanted_memory_bytes_{0};  // Written by the feed thread; relaxed.
  std::atomic<std::uint64_t> fill_memory_bytes_{0};    // Likewise.
  std::atomic<bool> shares_batches_{false};            // Of share_batches(), and the next, too.
  std::atomic<std::uint32_t> ready_batches_{shares_.ready_batches};
  std::unique_ptr<Fetcher> fetcher_;
  std::unique_ptr<KeptBlocks> kept_;
  std::unique_ptr<ThreadPool> workers_;
  std::unique_ptr<Pipeline> pipeline_;
  std::thread thread_;

  std::vector<WaitInterval> waits_;  ///< Of the batch to come; the caller of next() only.

  mutable Mutex mutex_;
  Position position_ HEADRACE_GUARDED_BY(mutex_);  ///< Where the current plan begins.
  Planned planned_ HEADRACE_GUARDED_BY(mutex_);    ///< While is_running_.
  /// Of the epoch after that, which the feed thread may be reading already.
  std::optional<Planned> following_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t delivered_ HEADRACE_GUARDED_BY(mutex_) =
      0;  ///< Batches of the plan that next() returned.
  bool is_running_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::atomic<bool> is_starved_{false};  // written by the feed thread; a hint, so relaxed
  bool has_ended_ HEADRACE_GUARDED_BY(mutex_) = false;  ///< next() said so; start_epoch() goes on.
  /// Changes only in load_state() and set_order_source(), which exclude next().
  std::shared_ptr<const OrderSource> source_ HEADRACE_GUARDED_BY(mutex_);

  /// What states say of a source besides the position, of the last one that was asked for.
  mutable std::shared_ptr<const OrderSource> state_source_ HEADRACE_GUARDED_BY(mutex_);
  mutable std::shared_ptr<const LoaderState> state_base_ HEADRACE_GUARDED_BY(mutex_);

  std::optional<Forecast> forecast_;  ///< Of the fetcher's store, which it must not outlive.
  Counter batches_;
  Counter samples_;
  Counter replaced_samples_;
  Counter spared_reads_;
  Counter delivered_bytes_;
  Counter first_batch_us_;
  Counter waited_us_;
  StallBook stalls_;
  SlowBatches slow_batches_;  ///< The caller of next() only.
};

std::shared_ptr<const Selection> LoaderImpl::make_selection(Selection selection) const {
  selection.values =
      std::make_shared<DecodedValues>(DecodedValues::Parts{.dataset = dataset_,
                                                           .cache = options_.value_cache,
                                                           .clock = &clock_,
                                                           .mode = options_.cache_decoded,
                                                           .indices = selection.indices,
                                                           .decoders = selection.decoders,
                                                           .schema = selection.schema});
  return std::make_shared<const Selection>(std::move(selection));
}

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
  // Here, because they belong to this thread, and in this order: the pipeline waits for batches
  // that workers finish, and workers use the fetcher. What next() left behind dies with the
  // channel.
  pipeline_.reset();
  kept_.reset();
  workers_.reset();
  fetcher_->shut_down();
}

Result<LoaderImpl::Planned> LoaderImpl::plan_at(const OrderSource& source, std::uint64_t epoch,
                                                std::uint64_t t,
                                                const std::stop_token& stop) const {
  const OrderQuery query{
      .epoch = epoch, .t = t, .global_batch = global_batch(), .world_size = options_.world_size};
  // Whoever waits for an order (another process may be making it) hears both: its caller and
  // stop().
  std::stop_source either;
  const auto end = [&] { either.request_stop(); };
  const std::stop_callback on_call(stop, end);
  const std::stop_callback on_loader(stop_.get_token(), end);
  HEADRACE_TRY_ASSIGN(OrderPlan answer, source.plan(query, either.get_token()));
  Planned planned;
  planned.plan = {.segment = {.start = answer.start, .global_batch = global_batch()},
                  .sample_count = answer.order != nullptr ? answer.order->sample_count() : 0,
                  .rank = options_.rank,
                  .world_size = options_.world_size,
                  .epoch_end = options_.epoch_end};
  planned.epoch = epoch;
  planned.before = t - answer.start;
  planned.order = std::move(answer.order);
  return planned;
}

std::uint64_t LoaderImpl::own_batches(const BatchPlan& plan) {
  const std::uint64_t count = plan.batch_count();
  return count > 0 && plan.slots(count - 1).count == 0 ? count - 1 : count;
}

Run LoaderImpl::run_of(const Planned& planned, std::uint64_t batches_before) const {
  return {.order = planned.order,
          .plan = planned.plan,
          .batch_count = own_batches(planned.plan),
          .batches_before = batches_before,
          .is_one_of_more = options_.epoch_count > 1,
          .is_last = is_last(planned)};
}

std::optional<LoaderImpl::Planned> LoaderImpl::plan_following(const OrderSource& source,
                                                              const Planned& planned,
                                                              const std::stop_token& stop) const {
  // Lists are made by the epoch, at some cost, and take as much memory again.
  const bool has_lanes = planned.order != nullptr && planned.order->lanes() != nullptr;
  if (!has_lanes || planned.epoch + 1 >= options_.epoch_count) return std::nullopt;
  auto following = plan_at(source, planned.epoch + 1, 0, stop);
  // What is wrong with that epoch is said when it begins.
  if (!following || following->order == nullptr) return std::nullopt;
  return *std::move(following);
}

Status LoaderImpl::start_epoch(const std::stop_token& stop) {
  if (channel_.is_stopped()) return Status(Code::kCancelled, "the loader was stopped");
  Position from;
  std::shared_ptr<const OrderSource> source;
  std::optional<Planned> known;
  {
    MutexLock lock(mutex_);
    if (is_running_ && (delivered_ == 0 || delivered_ < own_batches(planned_.plan))) {
      has_ended_ = false;
      return {};
    }
    // All batches were taken, but nobody asked for the end (islice(loader, len(loader))).
    if (is_running_) position_ = {.epoch = position_.epoch + 1, .t = 0, .batches = 0};
    is_running_ = false;
    from = position_;
    source = source_;
    known = std::exchange(following_, std::nullopt);
  }
  if (!known || known->epoch != from.epoch || from.t != 0) {
    HEADRACE_TRY_ASSIGN(known, plan_at(*source, from.epoch, from.t, stop));
  }
  Planned planned = *std::move(known);
  std::optional<Planned> following = plan_following(*source, planned, stop);
  std::optional<Run> run;
  if (planned.order != nullptr) run = run_of(planned, from.batches);
  if (run && following) run->following = std::make_shared<const Run>(run_of(*following, 0));
  const bool is_last_epoch = is_last(planned);
  using Next = DecodedValues::Next;
  const Next next = is_last_epoch ? Next::kNone : Next::kOne;
  selection_->values->begin_epoch(options_.epoch_count > 0 ? next : Next::kUnknown);
  forecast_->begin(
      {.source = source, .order = planned.order, .plan = planned.plan, .is_last = is_last_epoch});
  {
    MutexLock lock(mutex_);
    planned_ = std::move(planned);
    following_ = std::move(following);
    delivered_ = 0;
    is_running_ = true;
    has_ended_ = false;
  }
  waits_.clear();
  channel_.set_run(std::move(run), ready_batches_.load(std::memory_order_relaxed));
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
  if (must_start) HEADRACE_TRY(start_epoch(stop));
  while (true) {
    {
      MutexLock lock(mutex_);
      if (delivered_ == own_batches(planned_.plan)) {
        is_running_ = false;
        has_ended_ = true;
        position_ = {.epoch = position_.epoch + 1, .t = 0, .batches = 0};
        selection_->values->end_epoch();
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
      if (stop.stop_requested())
        return Status(Code::kCancelled, "waiting for a batch was cancelled");
      return Status(Code::kDeadline, "no batch was ready in time");
    }
    book(delivery->timeline);
    if (!delivery->error.ok()) return std::move(delivery->error);
    if (delivery->batch != nullptr) return take_batch(*std::move(delivery));
    MutexLock lock(mutex_);
    ++delivered_;  // All of its slots are empty.
  }
}

bool LoaderImpl::is_ready() const {
  {
    MutexLock lock(mutex_);
    if (has_ended_) return true;
    if (!is_running_) return false;
    if (delivered_ == own_batches(planned_.plan)) return true;
  }
  return !channel_.is_empty();
}

bool LoaderImpl::is_ahead() const {
  {
    MutexLock lock(mutex_);
    if (!is_running_ || has_ended_ || delivered_ == own_batches(planned_.plan)) return true;
  }
  return channel_.is_full();
}

Result<std::vector<std::uint64_t>> LoaderImpl::block_needs(std::uint64_t epochs,
                                                           std::uint32_t first_rank,
                                                           std::uint32_t ranks,
                                                           const std::stop_token& stop) const {
  if (first_rank >= options_.world_size || ranks == 0 || ranks > options_.world_size - first_rank)
    return Status(Code::kInvalidArgument, "block_needs: there are no such ranks");
  Position position;
  std::shared_ptr<const OrderSource> source;
  {
    MutexLock lock(mutex_);
    position = position_now();
    source = source_;
  }
  std::vector<std::uint64_t> needs(dataset_->block_count(), kNever);
  std::uint64_t before = 0;
  for (std::uint64_t i = 0; i < epochs; ++i) {
    const std::uint64_t t = i == 0 ? position.t : 0;
    HEADRACE_TRY_ASSIGN(const Planned planned, plan_at(*source, position.epoch + i, t, stop));
    if (planned.order == nullptr) continue;
    const auto own = first_needs(planned.order, dataset_->block_count(), planned.plan,
                                 {.first = first_rank, .count = ranks});
    for (std::size_t block = 0; block < needs.size(); ++block)
      if (own[block] != kNever) needs[block] = std::min(needs[block], before + own[block]);
    before += planned.plan.batch_count();
    // What all need is known: later epochs bring nothing new.
    if (std::find(needs.begin(), needs.end(), kNever) == needs.end()) break;
  }
  return needs;
}

Result<std::unique_ptr<Batch>> LoaderImpl::take_batch(Delivery delivery) {
  std::unique_ptr<BatchImpl> batch = std::move(delivery.batch);
  if (batches_.value() == 0) {
    first_batch_us_.add(static_cast<std::uint64_t>(
        std::chrono::floor<Microseconds>(clock_.now() - created_).count()));
  }
  batches_.add();
  samples_.add(batch->count());
  replaced_samples_.add(batch->replaced().size());
  delivered_bytes_.add(batch->byte_count());
  MutexLock lock(mutex_);
  HEADRACE_DCHECK(batch->identity().plan_index == delivered_);
  ++delivered_;
  return std::unique_ptr<Batch>(std::move(batch));
}

void LoaderImpl::book(const BatchTimeline& timeline) {
  slow_batches_.after(waits_, timeline, clock_.now(),
                      [&] { return fetcher_->name_of(timeline.slowest); });
  for (const WaitInterval& wait : waits_) {
    book_wait(stalls_, wait, timeline);
    waited_us_.add(static_cast<std::uint64_t>(wait_length(wait).count()));
  }
  waits_.clear();
}

Position LoaderImpl::position_now() const {
  if (!is_running_ || delivered_ == 0) return position_;
  if (is_plan_over()) return {.epoch = position_.epoch + 1, .t = 0, .batches = 0};
  return {.epoch = position_.epoch,
          .t = planned_.t_after(delivered_ - 1),
          .batches = position_.batches + delivered_};
}

LoaderState LoaderImpl::state_at(const Position& position, const OrderSource& source) const {
  return {.version = kStateVersion,
          .fingerprint = dataset_->fingerprint(),
          .version_fingerprint = dataset_->version_fingerprint(),
          .block_count = dataset_->block_count(),
          .order = source.spec(),
          .position = position,
          .epoch_end = options_.epoch_end,
          .global_batch = global_batch(),
          .quarantine = quarantine_digest_,
          .broken_shards = dataset_->broken_shards().size()};
}

std::function<std::string()> LoaderImpl::state_later() const {
  MutexLock lock(mutex_);
  if (state_source_ != source_) {
    state_source_ = source_;
    state_base_ = std::make_shared<const LoaderState>(state_at({}, *source_));
  }
  return [base = state_base_, source = state_source_, position = position_now()] {
    LoaderState state = *base;
    state.position = position;
    return write_state(state, source->state_extra(position.epoch, position.t));
  };
}

std::uint32_t LoaderImpl::share_batches(std::uint32_t wanted) {
  const BatchRoom room = room_for_held(shares_, wanted);
  shares_batches_.store(wanted > 0, std::memory_order_relaxed);
  ready_batches_.store(room.ready, std::memory_order_relaxed);
  channel_.set_capacity(room.ready);
  fetcher_->wake();
  return room.held;
}

void LoaderImpl::go_to(const Position& position, std::shared_ptr<const OrderSource> source,
                       bool has_ended) {
  channel_.set_run(std::nullopt, ready_batches_.load(std::memory_order_relaxed));
  fetcher_->wake();
  MutexLock lock(mutex_);
  source_ = std::move(source);
  following_.reset();
  position_ = position;
  is_running_ = false;
  has_ended_ = has_ended;
}

Status LoaderImpl::load_state(std::string_view json, const std::stop_token& stop) {
  std::shared_ptr<const OrderSource> source = this->source();
  Position position;
  HEADRACE_TRY_ASSIGN(auto foreign, source->read_foreign(json));
  std::shared_ptr<const OrderSource> other;
  if (foreign) {
    position = {.epoch = foreign->position.epoch,
                .t = foreign->position.t,
                .batches = foreign->position.t / global_batch()};
    other = std::move(foreign->source);
  } else {
    HEADRACE_TRY_ASSIGN(const LoaderState state, read_state(json, source->state_extra(0, 0)));
    HEADRACE_TRY(check_state(state, state_at({}, *source)));
    if (!source->continues(state.order.version)) {
      return Status(Code::kInvalidArgument,
                    "loader state: order_version is " + std::to_string(state.order.version) +
                        " in the state and " + std::to_string(source->spec().version) +
                        " here: this build cannot continue that order");
    }
    position = state.position;
    HEADRACE_TRY_ASSIGN(other, source->restored(state.order, json));
  }
  if (other != nullptr) source = std::move(other);
  // Proves that the source can go on there before anything changes.
  auto planned = plan_at(*source, position.epoch, position.t, stop);
  if (!planned) return std::move(planned).error().annotate("loader state");
  if (planned->order == nullptr) position = {.epoch = position.epoch + 1, .t = 0, .batches = 0};
  go_to(position, std::move(source));
  return {};
}

Status LoaderImpl::seek(std::uint64_t epoch, std::uint64_t batch, const std::stop_token& stop) {
  std::shared_ptr<const OrderSource> source = this->source();
  // What a state said of how an epoch began is of no epoch that is begun at its first batch.
  if (auto anew = source->begun_anew()) source = std::move(anew);
  HEADRACE_TRY_ASSIGN(const Planned planned, plan_at(*source, epoch, 0, stop));
  const std::uint64_t count = planned.plan.batch_count();
  if (batch > 0 && batch >= count) {
    return Status(Code::kInvalidArgument, "there is no batch " + std::to_string(batch) +
                                              " in epoch " + std::to_string(epoch) +
                                              ", which has " + std::to_string(count));
  }
  if (batch == 0) {
    // set_epoch() before each epoch: what was read of it stays.
    MutexLock lock(mutex_);
    const Position now = position_now();
    const bool is_there = now.epoch == epoch && now.t == 0 && (!is_running_ || is_plan_over());
    if (is_there) {
      position_ = now;
      is_running_ = has_ended_ = false;
      return {};
    }
  }
  const std::uint64_t t = batch == 0 ? 0 : planned.t_after(batch - 1);
  go_to({.epoch = epoch, .t = t, .batches = batch}, std::move(source));
  return {};
}

Status LoaderImpl::set_order_source(std::shared_ptr<const OrderSource> source,
                                    const std::stop_token& stop) {
  const OrderSpec theirs = source->spec();
  const OrderSpec ours = order_spec();
  if (theirs.id != ours.id || theirs.version != ours.version || theirs.seed != ours.seed ||
      theirs.block_table_digest != ours.block_table_digest) {
    return Status(Code::kInvalidArgument, "order '" + theirs.id + "' cannot go on where order '" +
                                              ours.id + "' stands: another order, seed or dataset");
  }
  Position position;
  bool is_at_end = false;
  {
    MutexLock lock(mutex_);
    position = position_now();
    is_at_end = has_ended_ || is_plan_over();
  }
  HEADRACE_TRY_ASSIGN(const Planned planned, plan_at(*source, position.epoch, position.t, stop));
  static_cast<void>(planned);
  // A loop that has its last batch must still be told that the epoch has ended.
  go_to(position, std::move(source), is_at_end);
  return {};
}

bool LoaderImpl::has_ended() const {
  MutexLock lock(mutex_);
  return has_ended_ || is_plan_over();
}

bool LoaderImpl::has_taken_all() const {
  MutexLock lock(mutex_);
  return has_ended_ || (is_running_ && delivered_ > 0 && delivered_ == own_batches(planned_.plan));
}

void LoaderImpl::end_epoch() {
  Position position;
  {
    MutexLock lock(mutex_);
    position = position_now();
  }
  go_to(position, source(), true);
}

Status LoaderImpl::unread() {
  Position position;
  {
    MutexLock lock(mutex_);
    if (!is_running_ || delivered_ == 0) return {};
    position = position_;
    if (delivered_ > 1) {
      position.t = planned_.t_after(delivered_ - 2);
      position.batches += delivered_ - 1;
    }
  }
  go_to(position, source());
  return {};
}

Result<std::uint64_t> LoaderImpl::batches_left(const std::stop_token& stop) const {
  Position position;
  {
    MutexLock lock(mutex_);
    if (is_running_) return own_batches(planned_.plan) - delivered_;
    position = position_;
  }
  HEADRACE_TRY_ASSIGN(const Planned planned, plan_at(*source(), position.epoch, position.t, stop));
  return own_batches(planned.plan);
}

Result<std::uint64_t> LoaderImpl::epoch_batches(const std::stop_token& stop) const {
  HEADRACE_TRY_ASSIGN(const Planned planned, plan_at(*source(), epoch(), 0, stop));
  return own_batches(planned.plan);
}

Result<double> LoaderImpl::lane_readers(const std::stop_token& stop) const {
  HEADRACE_TRY_ASSIGN(const Planned planned, plan_at(*source(), epoch(), 0, stop));
  const LaneOrder* lanes = planned.order == nullptr ? nullptr : planned.order->lanes();
  return lanes == nullptr ? 1.0 : lanes->lane_readers(global_batch(), options_.world_size);
}

Result<std::vector<std::int64_t>> LoaderImpl::sample_ids(std::uint64_t epoch,
                                                         std::uint64_t batch_index,
                                                         const std::stop_token& stop) const {
  HEADRACE_TRY_ASSIGN(const Planned planned, plan_at(*source(), epoch, 0, stop));
  if (batch_index >= own_batches(planned.plan)) {
    return Status(Code::kNotFound, "batch " + std::to_string(batch_index) +
                                       " of an epoch that has " +
                                       std::to_string(own_batches(planned.plan)) + " on this rank");
  }
  const BatchPlan::Slots slots = planned.plan.slots(batch_index);
  const EpochOrder& order = *planned.order;
  std::vector<std::int64_t> ids;
  ids.reserve(slots.count);
  for (std::uint32_t i = 0; i < slots.count; ++i) {
    const std::uint64_t t = slots.sample(i);
    if (order.locate(t, planned.plan.segment).lane == kNoLane) continue;
    ids.push_back(static_cast<std::int64_t>(order.dataset_position(t, planned.plan.segment)));
  }
  return ids;
}

MetricList LoaderImpl::stats() const {
  MetricList list;
  append_counter(list, "loader.batches", "batches", batches_.value());
  append_counter(list, "loader.samples", "samples", samples_.value());
  append_counter(list, "loader.replaced_samples", "samples", replaced_samples_.value());
  append_counter(list, "loader.bad_samples", "events", stand_ins_.found_count());
  append_counter(list, "loader.spared_reads", "reads", spared_reads_.value());
  append_gauge(list, "loader.broken_shards", "shards",
               static_cast<double>(dataset_->broken_shards().size()));
  append_counter(list, "loader.delivered_bytes", "bytes", delivered_bytes_.value());
  append_gauge(list, "loader.memory_wanted_bytes", "bytes",
               static_cast<double>(wanted_memory_bytes_.load(std::memory_order_relaxed)));
  append_gauge(list, "loader.memory_fill_bytes", "bytes",
               static_cast<double>(fill_memory_bytes_.load(std::memory_order_relaxed)));
  append_gauge(list, "loader.first_batch_us", "us", static_cast<double>(first_batch_us_.value()));
  append_counter(list, "loader.waited_us", "us", waited_us_.value());
  stalls_.append_to(list,
                    [](std::size_t i) { return stall_cause_name(static_cast<StallCause>(i)); });
  selection_->values->append_metrics(list);
  io::append_pool_metrics(list, waker_->pool());
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
  HEADRACE_TRY_ASSIGN(Selection selection, select_columns(*dataset, options));
  StandIns::Options stand_ins{.replaces_found = options.on_bad_sample == OnBadSample::kReplace,
                              .quarantine = never_delivered(*dataset, options),
                              .source_blocks = options.source_blocks};
  const SlabSizes sizes = SlabSizes::of(*dataset);
  HEADRACE_TRY_ASSIGN(const MemoryShares shares,
                      share_memory(needs_of(*dataset, selection, sizes, *pool, options)));
  std::shared_ptr<const OrderSource> source = options.order_source;
  if (source == nullptr) {
    HEADRACE_TRY_ASSIGN(source, make_source(*dataset, sizes, *pool, options));
  }
  try {
    return std::unique_ptr<Loader>(
        std::make_unique<LoaderImpl>(LoaderImpl::Start{.dataset = std::move(dataset),
                                                       .store = std::move(store),
                                                       .pool = std::move(pool),
                                                       .options = options,
                                                       .selection = std::move(selection),
                                                       .shares = shares,
                                                       .sizes = sizes,
                                                       .source = std::move(source),
                                                       .stand_ins = std::move(stand_ins)}));
  } catch (const std::system_error& error) {
    return Status(Code::kExhausted,
                  std::string("no thread to read with: ") + error.what() +
                      "; raise the limit of processes (ulimit -u, or the container's pids)");
  }
}

}  // namespace headrace
