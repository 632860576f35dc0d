#pragma once
/// \file
/// A running simulator over a temporary directory with bucket "b", for the tests of this folder.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/temporary_directory.h"
#include "headrace/sim.h"
#include "sim/test_client.h"

namespace headrace::sim {

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() {
    std::filesystem::create_directory(dir_.path() + "/b");
    options_.directory = dir_.path();
  }

  void start() {
    auto server = SimServer::start(options_);
    ASSERT_TRUE(server.has_value()) << server.error().message();
    server_ = *std::move(server);
    client_ = std::make_unique<TestClient>(server_->port());
  }
  TestClient& client() {
    if (!client_) start();
    return *client_;
  }
  void write_file(const std::string& path, const std::string& text) {
    const std::string full = dir_.path() + "/" + path;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::ofstream(full, std::ios::binary) << text;
  }
  nlohmann::json stats() { return nlohmann::json::parse(server_->stats_json()); }

  static std::string pattern(std::size_t size_bytes) {
    std::string text(size_bytes, '\0');
    for (std::size_t i = 0; i < size_bytes; ++i)
      text[i] = static_cast<char>((i * 31 + i / 251) & 0xff);
    return text;
  }

  TemporaryDirectory dir_;
  SimOptions options_;
  std::unique_ptr<SimServer> server_;
  std::unique_ptr<TestClient> client_;
};

}  // namespace headrace::sim
