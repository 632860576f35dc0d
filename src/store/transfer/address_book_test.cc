#include "store/transfer/address_book.h"

#include <gtest/gtest.h>

#include <set>

namespace headrace::transfer {
namespace {

using namespace std::chrono_literals;

const TimePoint kNow{1h};

AddressBook book_of(int count, TimePoint expires = kNow + kAddressLifetime) {
  std::vector<NetAddress> addresses;
  for (int i = 1; i <= count; ++i)
    addresses.push_back(*parse_numeric_address("192.0.2." + std::to_string(i), 80));
  AddressBook book;
  book.assign(addresses, expires);
  return book;
}

TEST(AddressBook, IsFreshForItsLifetime) {
  AddressBook empty;
  EXPECT_FALSE(empty.is_fresh(kNow));
  AddressBook book = book_of(1);
  EXPECT_TRUE(book.is_fresh(kNow));
  EXPECT_FALSE(book.is_fresh(kNow + kAddressLifetime));
  EXPECT_TRUE(book_of(1, TimePoint::max()).is_fresh(kNow + 1000h));
}

TEST(AddressBook, SpreadsConnectionsOverAllAddresses) {
  AddressBook book = book_of(3);
  std::multiset<std::size_t> picked;
  for (int i = 0; i < 9; ++i) picked.insert(book.pick(kNow));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(picked.count(i), 3U);
}

TEST(AddressBook, AvoidsAFailedAddressForAWhile) {
  AddressBook book = book_of(2);
  book.mark_failed(book.at(0), kNow);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(book.pick(kNow + 1s), 1U);
  std::set<std::size_t> picked;
  for (int i = 0; i < 4; ++i) picked.insert(book.pick(kNow + kAvoidFailedAddress));
  EXPECT_EQ(picked.size(), 2U);
}

TEST(AddressBook, UsesFailedAddressesWhenThereAreNoOthers) {
  AddressBook book = book_of(2);
  book.mark_failed(book.at(0), kNow);
  book.mark_failed(book.at(1), kNow);
  std::set<std::size_t> picked{book.pick(kNow), book.pick(kNow)};
  EXPECT_EQ(picked.size(), 2U);
}

NetAddress address(int i) { return *parse_numeric_address("192.0.2." + std::to_string(i), 80); }

TEST(AddressBook, FailedAddressIsTriedByOneConnectionAndThenByAll) {
  AddressBook book = book_of(2);
  book.mark_failed(address(1), kNow);
  const TimePoint later = kNow + kAvoidFailedAddress;
  int tries = 0;
  for (int i = 0; i < 6; ++i) tries += book.pick(later) == 0 ? 1 : 0;
  EXPECT_EQ(tries, 1);
  book.mark_good(address(1));
  for (int i = 0; i < 6; ++i) tries += book.pick(later) == 0 ? 1 : 0;
  EXPECT_EQ(tries, 4);
}

TEST(AddressBook, HarvestsTheAnswersOfAllLookUps) {
  AddressBook book;
  book.harvest({address(1), address(2)}, kNow, kNow + kAddressLifetime);
  book.harvest({address(2), address(3)}, kNow + 30s, kNow + 60s);
  EXPECT_EQ(book.size(), 3U);
  EXPECT_TRUE(book.is_fresh(kNow + 59s));
  EXPECT_FALSE(book.is_fresh(kNow + 60s));
}

TEST(AddressBook, ForgetsAddressesThatNobodyNamesAnyMore) {
  AddressBook book;
  book.harvest({address(1), address(2)}, kNow, kNow + 30s);
  book.harvest({address(2)}, kNow + kForgetAddress - 1s, kNow + 600s);
  EXPECT_EQ(book.size(), 2U);
  book.harvest({address(2)}, kNow + kForgetAddress, kNow + 600s);
  EXPECT_EQ(book.size(), 1U);
}

TEST(AddressBook, ForgetsUnnamedAddressesThatFailAtOnce) {
  AddressBook book;
  book.harvest({address(1), address(2)}, kNow, kNow + 30s);
  book.mark_failed(address(1), kNow + 1s);
  book.harvest({address(2)}, kNow + 2s, kNow + 600s);
  EXPECT_EQ(book.size(), 1U);
  book.mark_failed(address(2), kNow + 3s);  // the last one stays while it is named
  book.harvest({address(2)}, kNow + 4s, kNow + 600s);
  EXPECT_EQ(book.size(), 1U);
}

TEST(AddressBook, KeepsABoundedNumber) {
  AddressBook book;
  for (int i = 1; i < 200; ++i) book.harvest({address(i)}, kNow + i * 1ms, kNow + 600s);
  EXPECT_EQ(book.size(), kMaxAddresses);
}

void report_all(AddressBook& book, Microseconds slow_first_byte, Microseconds slow_body,
                TimePoint now) {
  for (int i = 0; i < 20; ++i) {
    book.report(address(1), {1 << 20, slow_first_byte, slow_body}, now);
    book.report(address(2), {1 << 20, 30ms, 20ms}, now);
    book.report(address(3), {1 << 20, 33ms, 22ms}, now);
  }
}

TEST(AddressBook, DemotesAnAddressWithLateFirstBytes) {
  AddressBook book = book_of(3, TimePoint::max());
  report_all(book, 200ms, 20ms, kNow);
  EXPECT_TRUE(book.is_avoided(address(1), kNow + 1s));
  EXPECT_FALSE(book.is_avoided(address(2), kNow + 1s));
  for (int i = 0; i < 9; ++i) EXPECT_NE(book.pick(kNow + 1s), 0U);
  EXPECT_EQ(book.demotions(), 1U);
}

TEST(AddressBook, DemotesAnAddressWithSlowBodies) {
  AddressBook book = book_of(3, TimePoint::max());
  report_all(book, 30ms, 100ms, kNow);
  EXPECT_TRUE(book.is_avoided(address(1), kNow + 1s));
}

TEST(AddressBook, TakesADemotedAddressBackWhenItIsGoodAgain) {
  AddressBook book = book_of(3, TimePoint::max());
  report_all(book, 200ms, 20ms, kNow);
  const TimePoint later = kNow + kDemoteSlowAddress;
  EXPECT_FALSE(book.is_avoided(address(1), later));
  report_all(book, 30ms, 20ms, later);
  EXPECT_FALSE(book.is_avoided(address(1), later));
  std::multiset<std::size_t> picked;
  for (int i = 0; i < 9; ++i) picked.insert(book.pick(later));
  EXPECT_EQ(picked.count(0), 3U);
}

TEST(AddressBook, SpreadOfAHealthyStoreDemotesNobody) {
  AddressBook book = book_of(3, TimePoint::max());
  report_all(book, 60ms, 35ms, kNow);
  EXPECT_EQ(book.demotions(), 0U);
  AddressBook lan = book_of(3, TimePoint::max());
  for (int i = 0; i < 20; ++i) {
    lan.report(address(1), {1000, 1ms, 1us}, kNow);  // five times the other, and nothing
    lan.report(address(2), {1000, 200us, 1us}, kNow);
  }
  EXPECT_EQ(lan.demotions(), 0U);
}

TEST(AddressBook, FindsAnotherAddressForASecondAttempt) {
  AddressBook book = book_of(3);
  for (int i = 0; i < 9; ++i) EXPECT_NE(book.pick_other(address(2), kNow), 1U);
  AddressBook one = book_of(1);
  EXPECT_EQ(one.pick_other(address(1), kNow), 0U);
}

TEST(AddressBook, SecondAttemptsUseUpNoTrialOfTheFirstOnesAddress) {
  AddressBook book = book_of(2);
  book.mark_failed(address(1), kNow);
  const TimePoint later = kNow + kAvoidFailedAddress;
  EXPECT_EQ(book.pick_other(address(1), later), 1U);
  std::multiset<std::size_t> picked{book.pick(later), book.pick(later), book.pick(later)};
  EXPECT_EQ(picked.count(0), 1U);
}

TEST(AddressBook, SecondAttemptsKeepTheirAddressBeforeABadOne) {
  AddressBook book = book_of(2);
  book.mark_failed(address(2), kNow);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(book.pick_other(address(1), kNow), 0U);
  EXPECT_LT(book.pick_other(address(9), kNow), 2U);  // one that the book does not know any more
}

TEST(AddressBook, FailureAsksForNewAddressesSoon) {
  AddressBook book = book_of(2);
  book.mark_failed(book.at(0), kNow);
  EXPECT_TRUE(book.is_fresh(kNow));
  EXPECT_FALSE(book.is_fresh(kNow + kLookAgainAfterFailure));
  AddressBook numeric = book_of(1, TimePoint::max());
  numeric.mark_failed(numeric.at(0), kNow);
  EXPECT_TRUE(numeric.is_fresh(kNow + 1000h));
}

}  // namespace
}  // namespace headrace::transfer
