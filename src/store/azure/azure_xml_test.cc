#include "store/azure/azure_xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/azure/azure_batch.h"
#include "store/azure/azure_uploads.h"

namespace headrace::azure {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string blob(const std::string& name, int size, const std::string& more = "") {
  return "<Blob>" + name + "<Properties><Last-Modified>Sat, 21 Nov 2026 14:00:00 GMT" +
         "</Last-Modified><Etag>0x8D1</Etag><Content-Length>" + std::to_string(size) +
         "</Content-Length></Properties>" + more + "</Blob>";
}

std::string listing(const std::string& blobs, const std::string& marker = "") {
  return "\xef\xbb\xbf<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs>" +
         blobs + "</Blobs><NextMarker>" + marker + "</NextMarker></EnumerationResults>";
}

TEST(AzureXml, ReadsAListing) {
  auto page = parse_list(
      listing(blob("<Name>p/a b</Name>", 7) + "<BlobPrefix><Name>p/d/</Name></BlobPrefix>" +
                  blob("<Name Encoded=\"true\">p%2Fx%01</Name>", 0) + blob("<Name>p/</Name>", 0),
              "2!8!x"),
      "p/");
  ASSERT_TRUE(page) << page.error().message();
  ASSERT_EQ(page->objects.size(), 2U);
  EXPECT_EQ(page->objects[0].key, "a b");
  EXPECT_EQ(page->objects[0].size_bytes, 7U);
  EXPECT_EQ(page->objects[0].etag, "\"0x8D1\"");
  EXPECT_EQ(page->objects[0].modified_unix_s, 1'795'269'600);
  EXPECT_EQ(page->objects[1].key, "x\x01");
  EXPECT_THAT(page->common_prefixes, ElementsAre("d/"));
  EXPECT_EQ(page->continuation, "2!8!x");
}

TEST(AzureXml, LeavesOutDirectories) {
  auto page = parse_list(
      listing(
          blob("<Name>d</Name>", 0, "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>") +
          blob("<Name>e</Name>", 0, "<Metadata><Hdi_isfolder>TRUE</Hdi_isfolder></Metadata>") +
          blob("<Name>full</Name>", 5, "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>")),
      "");
  ASSERT_TRUE(page);
  ASSERT_EQ(page->objects.size(), 1U);
  EXPECT_EQ(page->objects[0].key, "full");
}

TEST(AzureXml, SortsByBytes) {
  auto page = parse_list(listing(blob("<Name>a/b</Name>", 1) + blob("<Name>a-b</Name>", 1)), "");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->objects[0].key, "a-b");
}

TEST(AzureXml, RefusesWhatIsNoListing) {
  const std::string good = listing(blob("<Name>a</Name>", 1));
  for (const std::string& bad :
       {std::string(), std::string("<"), std::string("<html/>"), good.substr(0, good.size() / 2),
        listing("<Blob><Name>a</Name></Blob>"), listing(blob("<Name>other</Name>", 1)),
        listing(blob("<Name Encoded=\"true\">a%</Name>", 1)),
        listing("<Blob><Name>a</Name><Properties><Content-Length>-1</Content-Length>"
                "</Properties></Blob>")}) {
    auto page = parse_list(bad, "a");
    ASSERT_FALSE(page) << bad;
    EXPECT_EQ(page.error().code(), Code::kCorrupt) << bad;
  }
}

TEST(AzureXml, ReadsContainers) {
  const std::string head = "<?xml version=\"1.0\"?><EnumerationResults><Containers>";
  auto page = parse_containers(head +
                               "<Container><Name>one</Name></Container><Container><Name>$web</Name>"
                               "</Container></Containers><NextMarker>n</NextMarker>"
                               "</EnumerationResults>");
  ASSERT_TRUE(page) << page.error().message();
  EXPECT_THAT(page->names, ElementsAre("one", "$web"));
  EXPECT_EQ(page->next, "n");
  auto none =
      parse_containers("<EnumerationResults><Containers/><NextMarker/></EnumerationResults>");
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->names.empty() && none->next.empty());
  for (const std::string& bad : {std::string(), listing(""), head,
                                 head + "<Container/></Containers></EnumerationResults>"}) {
    EXPECT_EQ(parse_containers(bad).error().code(), Code::kCorrupt) << bad;
  }
}

TEST(AzureXml, SurvivesEveryCutAndEveryFlip) {
  const std::string good = listing(blob("<Name Encoded=\"true\">a%41</Name>", 1), "m");
  for (std::size_t i = 0; i < good.size(); ++i) {
    static_cast<void>(parse_list(good.substr(0, i), ""));
    std::string flipped = good;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x15);
    static_cast<void>(parse_list(flipped, ""));
    static_cast<void>(parse_block_list(flipped));
    static_cast<void>(parse_error_body(flipped));
  }
}

TEST(AzureXml, ReadsABlockList) {
  auto blocks = parse_block_list(
      "<BlockList><CommittedBlocks><Block><Name>YQ==</Name><Size>4</Size></Block>"
      "</CommittedBlocks><UncommittedBlocks><Block><Name>Yg==</Name><Size>5</Size></Block>"
      "</UncommittedBlocks></BlockList>");
  ASSERT_TRUE(blocks) << blocks.error().message();
  ASSERT_EQ(blocks->size(), 2U);
  EXPECT_TRUE((*blocks)[0].is_committed);
  EXPECT_EQ((*blocks)[1].id, "Yg==");
  EXPECT_EQ((*blocks)[1].size_bytes, 5U);
  EXPECT_FALSE(parse_block_list("<Other/>"));
  EXPECT_FALSE(
      parse_block_list("<BlockList><CommittedBlocks><Block><Name>a</Name></Block>"
                       "</CommittedBlocks></BlockList>"));
}

TEST(AzureXml, NamesTheBlocksToCommit) {
  const std::string ids[] = {"YQ==", "Yg=="};
  EXPECT_THAT(format_block_list(ids),
              HasSubstr("<BlockList><Latest>YQ==</Latest><Latest>Yg==</Latest></BlockList>"));
}

TEST(AzureUploads, BlockIdsTellUploadAndPart) {
  auto upload = new_upload_id();
  ASSERT_TRUE(upload);
  EXPECT_TRUE(is_upload_id(*upload));
  EXPECT_NE(*upload, *new_upload_id());
  const BlockId id = block_id(*upload, 10'000);
  const std::string_view text(id.data(), id.size());
  EXPECT_EQ(text.find('='), std::string_view::npos);
  EXPECT_EQ(part_of_block(text, *upload), 10'000U);
  EXPECT_EQ(part_of_block(text, std::string(24, '0')), std::nullopt);
  EXPECT_EQ(part_of_block("bm90IG91cnM=", *upload), std::nullopt);
  EXPECT_EQ(part_of_block("not base64", *upload), std::nullopt);
  EXPECT_FALSE(is_upload_id("id"));
  EXPECT_FALSE(is_upload_id(std::string(24, 'G')));
}

TEST(AzureUploads, RemembersTheLastAborts) {
  AbortedUploads aborted;
  for (int i = 0; i < 1025; ++i) aborted.add(std::to_string(i));
  EXPECT_FALSE(aborted.contains("0"));
  EXPECT_TRUE(aborted.contains("1"));
  EXPECT_TRUE(aborted.contains("1024"));
}

TEST(AzureBatch, WritesParts) {
  std::string body;
  append_batch_part(0, "DELETE /c/b HTTP/1.1\r\n\r\n", body);
  finish_batch(body);
  EXPECT_EQ(body,
            "--batch_68656164-7261-4365-8000-000000000000\r\ncontent-type: application/http\r\n"
            "content-transfer-encoding: binary\r\ncontent-id: 0\r\n\r\n"
            "DELETE /c/b HTTP/1.1\r\n\r\n"
            "--batch_68656164-7261-4365-8000-000000000000--\r\n");
}

TEST(AzureBatch, ReadsTheOutcomeOfEach) {
  auto results = parse_batch(
      "--batchresponse_1\r\nContent-Type: application/http\r\nContent-ID: 1\r\n\r\n"
      "HTTP/1.1 404 The specified blob does not exist.\r\nx-ms-error-code: BlobNotFound\r\n\r\n"
      "<Error/>\r\n--batchresponse_1\r\nContent-ID: 0\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n"
      "--batchresponse_1--",
      3);
  ASSERT_TRUE(results) << results.error().message();
  EXPECT_EQ((*results)[0].http_status, 202);
  EXPECT_EQ((*results)[1].http_status, 404);
  EXPECT_EQ((*results)[1].error_code, "BlobNotFound");
  EXPECT_EQ((*results)[2].http_status, 0);
}

TEST(AzureBatch, SurvivesAnything) {
  for (const char* bad : {"", "no parts", "--", "--\r\n", "HTTP/1.1 202 x"})
    EXPECT_FALSE(parse_batch(bad, 1)) << bad;
  EXPECT_FALSE(parse_batch("--b\r\nContent-ID: 9\r\n\r\nHTTP/1.1 202 x\r\n\r\n--b--", 1));
  auto cut = parse_batch("--b\r\nContent-ID: 0\r\n\r\nHTTP/1.1 2", 1);
  ASSERT_TRUE(cut);
  EXPECT_EQ((*cut)[0].http_status, 0);
}

}  // namespace
}  // namespace headrace::azure
