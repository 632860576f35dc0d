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
