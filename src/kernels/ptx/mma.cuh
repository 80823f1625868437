// Tensor-core products of one warp (PTX ISA, "Warp-level matrix instructions: mma").
#pragma once

#include "common/types.cuh"

namespace moetune::ptx {

/// d += a·b for m16n8k16, bf16 × bf16 → fp32. sm_80 and later.
/// a: 4 registers, rows l/4 and l/4+8, columns 2·(l%4)+{0,1} and +8;  b: 2 registers, the same columns as rows, column
/// l/4; d: rows l/4 (d0, d1) and l/4+8 (d2, d3), columns 2·(l%4)+{0,1}.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

}  // namespace moetune::ptx
