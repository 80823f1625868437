#include "cpu/cpu_device.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

TEST(CpuDevice, IsThisMachine) {
  const CpuDevice device;
  EXPECT_EQ(device.kind(), TargetKind::cpu);
  const auto targets = device.targets();
  ASSERT_EQ(targets.size(), 1U);
  EXPECT_EQ(targets[0].kind, TargetKind::cpu);
  EXPECT_GE(targets[0].cores.value_or(0), 1);
}

TEST(CpuDevice, MeasuresEveryCeiling) {
  const CpuDevice device;
  const auto ceilings = device.measure(device.targets().front());
  ASSERT_TRUE(ceilings) << ceilings.error().what;
  EXPECT_GT(ceilings->copy_gb_s, 0);
  EXPECT_GT(ceilings->bf16_tflops, 0);
  EXPECT_EQ(ceilings->fp8_tflops, 0);
  ASSERT_GE(ceilings->reads.size(), 4U);
  for (std::size_t i = 0; i < ceilings->reads.size(); ++i) {
    EXPECT_GT(ceilings->reads[i].gb_s, 0);
    if (i > 0) {
      EXPECT_GT(ceilings->reads[i].bytes, ceilings->reads[i - 1].bytes);
    }
  }
  EXPECT_EQ(ceilings->read_gb_s, ceilings->reads.back().gb_s);
}

}  // namespace
}  // namespace moetune
