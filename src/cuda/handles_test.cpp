#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "cuda/graph.h"
#include "cuda/module.h"
#include "cuda/test_scripted.h"

namespace moetune::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// An ELF header is all that Module::load looks at before the driver does.
std::string image() {
  std::string bytes(64, '\0');
  bytes.replace(0, 4,
                "\x7f"
                "ELF");
  return bytes;
}

std::span<const std::byte> bytes_of(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

/// Uses everything of the room once.
Status whole_walk(const std::shared_ptr<const Driver>& driver) {
  MOETUNE_TRY(const auto context, Context::create(driver, 0));
  MOETUNE_TRY(const auto stream, Stream::create(context));
  MOETUNE_TRY(const auto event, Event::create(context));
  MOETUNE_CHECK(event.record(stream));
  MOETUNE_CHECK(stream.wait(event));
  MOETUNE_CHECK(event.synchronize());
  MOETUNE_TRY(const bool done, stream.done());
  (void)done;
  std::vector<float> values(16, 1.0F);
  MOETUNE_TRY(const auto buffer, DeviceBuffer::of(context, bytes_of(values)));
  MOETUNE_TRY(const auto other, DeviceBuffer::allocate(context, 64));
  MOETUNE_TRY(const auto pinned, PinnedBuffer::allocate(context, 64));
  MOETUNE_CHECK(buffer.fill(stream, 0xff));
  MOETUNE_CHECK(other.copy(stream, buffer, 64));
  MOETUNE_CHECK(other.download(stream, pinned.bytes()));
  MOETUNE_CHECK(other.upload(stream, pinned.bytes()));
  MOETUNE_CHECK(other.download(std::as_writable_bytes(std::span(values))));
  MOETUNE_TRY(const auto module, Module::load(context, image()));
  MOETUNE_TRY(const auto function, module.function("scale"));
  MOETUNE_TRY(const auto global, module.global("limit"));
  (void)global;
  MOETUNE_TRY(const auto info, function.info());
  (void)info;
  MOETUNE_CHECK(function.allow_dynamic_shared(100'000));
  MOETUNE_CHECK(function.allow_large_clusters());
  MOETUNE_TRY(const int blocks, function.blocks_per_sm(256, 0));
  (void)blocks;
  MOETUNE_TRY(const int clusters, function.clusters_on_device({.cluster = {2, 1, 1}}));
  (void)clusters;
  const auto launch = [&](std::size_t) { return function(stream, {}, buffer.as<float>(), 2.0F, 16); };
  MOETUNE_TRY(const auto graph, Graph::capture(stream, [&] { return launch(0); }));
  MOETUNE_TRY(const auto nodes, graph.nodes());
  (void)nodes;
  MOETUNE_TRY(const auto timed, TimedGraph::capture(stream, 3, launch, Marks::laps));
  MOETUNE_TRY(const auto us, timed.replay(stream));
  (void)us;
  MOETUNE_CHECK(stream.synchronize());
  return context->synchronize();
}

TEST(Handles, EverythingMadeIsDestroyed) {
  const auto driver = ScriptedDriver::get().open();
  const auto status = whole_walk(driver);
  ASSERT_TRUE(status) << status.error().what;
  EXPECT_EQ(ScriptedDriver::get().live(), 0);
  EXPECT_EQ(ScriptedDriver::get().capturing(), 0);
}

// Whichever call fails: the error names it, nothing is left alive, no recording stays open. A failing destructor is
// silent.
TEST(Handles, AnyFailingCallIsAnErrorThatNamesItAndLeaksNothing) {
  auto& script = ScriptedDriver::get();
  const auto driver = script.open();
  script.reset();
  ASSERT_TRUE(whole_walk(driver));
  const int calls = script.calls();
  ASSERT_GT(calls, 50);
  int errors = 0;
  for (int at = 1; at <= calls; ++at) {
    script.reset(13000, 1, at, cu::kIllegalAddress);
    const auto status = whole_walk(driver);
    const auto failed = script.failed_call();
    EXPECT_EQ(script.live(), 0) << failed;
    EXPECT_EQ(script.capturing(), 0) << failed;
    const bool silent = failed.find("Destroy") != std::string::npos || failed.find("Unload") != std::string::npos ||
                        failed.find("Free") != std::string::npos || failed.find("Release") != std::string::npos ||
                        failed == "cuCtxPushCurrent" || failed == "cuCtxPopCurrent";
    EXPECT_EQ(status.has_value(), silent) << failed;
    if (status) continue;
    ++errors;
    EXPECT_THAT(status.error().what, HasSubstr(failed));
    EXPECT_THAT(status.error().what, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
    EXPECT_EQ(status.error().kind, ErrorKind::device_lost);
  }
  EXPECT_GT(errors, 40);
}

TEST(Handles, OutOfMemorySaysWhatWasFree) {
  auto& script = ScriptedDriver::get();
  const auto driver = script.open();
  const auto context = Context::create(driver, 0);
  ASSERT_TRUE(context);
  script.reset(13000, 1, 1, cu::kOutOfMemory);
  const auto buffer = DeviceBuffer::allocate(*context, 123456);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().kind, ErrorKind::out_of_memory);
  EXPECT_EQ(buffer.error().what,
            "cuMemAlloc(123456 bytes, 1000 of 5000 free): CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
}

TEST(Handles, CopiesOutsideABufferAreRefused) {
  const auto driver = ScriptedDriver::get().open();
  const auto context = Context::create(driver, 0);
  ASSERT_TRUE(context);
  const auto buffer = DeviceBuffer::allocate(*context, 64);
  ASSERT_TRUE(buffer);
  std::array<std::byte, 65> host{};
  EXPECT_FALSE(buffer->upload(host));
  EXPECT_FALSE(buffer->download(host));
  EXPECT_TRUE(buffer->upload(std::span(host).first(64)));
  EXPECT_FALSE(buffer->upload(std::span(host).first(64), 1));
  EXPECT_TRUE(buffer->upload(std::span(host).first(1), 63));
  const auto past = buffer->upload(std::span(host).first(1), ~std::size_t{0});
  ASSERT_FALSE(past);
  EXPECT_THAT(past.error().what, HasSubstr("do not fit in a buffer of 64 bytes"));
}

TEST(Handles, AnEmptyBufferAsksNothingOfTheDriver) {
  const auto driver = ScriptedDriver::get().open();
  const auto context = Context::create(driver, 0);
  ASSERT_TRUE(context);
  const int before = ScriptedDriver::get().calls();
  const auto buffer = DeviceBuffer::allocate(*context, 0);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(buffer->pointer(), 0U);
  EXPECT_TRUE(buffer->upload(std::span<const std::byte>{}));
  EXPECT_EQ(ScriptedDriver::get().calls(), before);
}

TEST(Handles, WhatIsNoCubinDoesNotReachTheDriver) {
  const auto driver = ScriptedDriver::get().open();
  const auto context = Context::create(driver, 0);
  ASSERT_TRUE(context);
  const int before = ScriptedDriver::get().calls();
  EXPECT_FALSE(Module::load(*context, ""));
  EXPECT_FALSE(Module::load(*context,
                            "\x7f"
                            "ELF"));
  EXPECT_FALSE(Module::load(*context, std::string(1000, 'x')));
  EXPECT_EQ(ScriptedDriver::get().calls(), before);
}

TEST(Handles, AFunctionKeepsItsModuleAndAnythingItsContext) {
  auto& script = ScriptedDriver::get();
  const auto driver = script.open();
  std::optional<Function> function;
  {
    auto context = Context::create(driver, 0);
    ASSERT_TRUE(context);
    auto module = Module::load(*context, image());
    ASSERT_TRUE(module);
    auto found = module->function("scale");
    ASSERT_TRUE(found);
    function = *std::move(found);
  }
  EXPECT_EQ(script.live(), 2);  // the module and the context
  EXPECT_TRUE(function->info());
  function.reset();
  EXPECT_EQ(script.live(), 0);
}

TEST(Handles, MovedFromIsEmptyAndAssignmentSwaps) {
  auto& script = ScriptedDriver::get();
  const auto driver = script.open();
  {
    const auto context = Context::create(driver, 0);
    ASSERT_TRUE(context);
    auto first = Stream::create(*context);
    auto second = Stream::create(*context);
    ASSERT_TRUE(first);
    ASSERT_TRUE(second);
    const auto raw = second->raw();
    *first = std::move(*second);
    EXPECT_EQ(first->raw(), raw);
    EXPECT_EQ(script.live(), 3);
  }
  EXPECT_EQ(script.live(), 0);
}

TEST(Handles, DestroysOnAnotherThread) {
  auto& script = ScriptedDriver::get();
  const auto driver = script.open();
  const auto context = Context::create(driver, 0);
  ASSERT_TRUE(context);
  auto buffer = DeviceBuffer::allocate(*context, 64);
  ASSERT_TRUE(buffer);
  std::thread([moved = *std::move(buffer)]() mutable { const auto gone = std::move(moved); }).join();
  EXPECT_EQ(script.live(), 1);
}

TEST(Graph, AnErrorOfTheCallerEndsTheRecordingAndIsPassedOn) {
  auto& script = ScriptedDriver::get();
  const auto driver = script.open();
  const auto context = Context::create(driver, 0);
  const auto stream = Stream::create(*context);
  ASSERT_TRUE(stream);
  const auto graph = Graph::capture(*stream, [] { return Status(fail("no such config")); });
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().what, "no such config");
  EXPECT_EQ(script.capturing(), 0);
  EXPECT_EQ(script.live(), 2);  // context and stream
}

// The scripted clock ticks 250 us a record.
TEST(TimedGraph, LapsOrTheirMean) {
  const auto driver = ScriptedDriver::get().open();
  const auto context = Context::create(driver, 0);
  const auto stream = Stream::create(*context);
  ASSERT_TRUE(stream);
  std::vector<std::size_t> seen;
  const auto enqueue = [&seen](std::size_t lap) {
    seen.push_back(lap);
    return Status();
  };
  const auto laps = TimedGraph::capture(*stream, 3, enqueue, Marks::laps);
  ASSERT_TRUE(laps) << laps.error().what;
  EXPECT_THAT(seen, ElementsAre(0, 1, 2));
  const auto each = laps->replay(*stream);
  ASSERT_TRUE(each);
  EXPECT_THAT(*each, ElementsAre(250.0, 250.0, 250.0));
  const auto ends = TimedGraph::capture(*stream, 4, enqueue, Marks::ends);
  ASSERT_TRUE(ends);
  const auto mean = ends->replay(*stream);
  ASSERT_TRUE(mean);
  EXPECT_THAT(*mean, ElementsAre(62.5));
  EXPECT_FALSE(TimedGraph::capture(*stream, 0, enqueue, Marks::ends));
}

}  // namespace
}  // namespace moetune::cuda
