"""What the tile instructions do, done to memory: for machines without AMX.

So that a kernel for AMX can be checked wherever packs are made. Written after Intel's "Instruction
Set Extensions Programming Reference", chapter on AMX:

- ``tdpbf16ps`` sums even and odd elements of K apart, each with a fused multiply-add, adds the two
  and then the tile; results below the least normal number become zero, so do such operands.
  ``tdpfp16ps`` is the same, but takes small operands as they are.
- A load fills rows and columns that the configuration leaves out with zeros.
- An instruction on a tile that is not configured, or on tiles that do not fit each other, traps.

The order of summation is the CPU's, so results are the same to the last bit. There is one set of
tiles in a process: emulated kernels run in one thread at a time.
"""

from __future__ import annotations

_VECTOR = "<16 x float>"
_WORDS = "<16 x i32>"
_LANES = "<16 x i32> <" + ", ".join(f"i32 {lane}" for lane in range(16)) + ">"


def llvm_ir(dtype: str) -> str:
    """Functions ``emulated_tile_*``, with the parameters of LLVM's intrinsics."""
    return _STATE + _MOVES + _dot(dtype)


def _broadcast(name: str, source: str, element: str, vector: str) -> str:
    return f"""
  %{name}_one = insertelement {vector} poison, {element} {source}, i64 0
  %{name} = shufflevector {vector} %{name}_one, {vector} poison, {_WORDS} zeroinitializer"""


_STATE = f"""
@tile_configuration = internal global [64 x i8] zeroinitializer, align 64
@tiles = internal global [8 x [16 x {_WORDS}]] zeroinitializer, align 64

declare void @llvm.trap()
declare {_WORDS} @llvm.masked.load.v16i32.p0(ptr, i32, <16 x i1>, {_WORDS})
declare void @llvm.masked.store.v16i32.p0({_WORDS}, ptr, i32, <16 x i1>)
declare {_VECTOR} @llvm.fma.v16f32({_VECTOR}, {_VECTOR}, {_VECTOR})
declare {_VECTOR} @llvm.fabs.v16f32({_VECTOR})
declare {_VECTOR} @llvm.copysign.v16f32({_VECTOR}, {_VECTOR})

define void @emulated_tile_check(i1 %valid) {{
  br i1 %valid, label %done, label %fault
fault:
  call void @llvm.trap()
  unreachable
done:
  ret void
}}

define i64 @emulated_tile_rows(i8 %tile) {{
  %index = zext i8 %tile to i64
  %at = add i64 %index, 48
  %place = getelementptr i8, ptr @tile_configuration, i64 %at
  %byte = load i8, ptr %place
  %configured = icmp ne i8 %byte, 0
  call void @emulated_tile_check(i1 %configured)
  %rows = zext i8 %byte to i64
  ret i64 %rows
}}

define i64 @emulated_tile_words(i8 %tile) {{
  %index = zext i8 %tile to i64
  %twice = shl i64 %index, 1
  %at = add i64 %twice, 16
  %place = getelementptr i8, ptr @tile_configuration, i64 %at
  %short = load i16, ptr %place
  %bytes = zext i16 %short to i64
  %rest = and i64 %bytes, 3
  %whole = icmp eq i64 %rest, 0
  call void @emulated_tile_check(i1 %whole)
  %words = lshr i64 %bytes, 2
  ret i64 %words
}}

define <16 x i1> @emulated_tile_mask(i64 %words) {{
  %count = trunc i64 %words to i32{_broadcast("counts", "%count", "i32", _WORDS)}
  %mask = icmp ult {_LANES}, %counts
  ret <16 x i1> %mask
}}

define ptr @emulated_tile_row(i8 %tile, i64 %row) {{
  %index = zext i8 %tile to i64
  %place = getelementptr [16 x {_WORDS}], ptr @tiles, i64 %index, i64 %row
  ret ptr %place
}}

define void @emulated_tile_clear(i8 %tile, i64 %first) {{
entry:
  br label %head
head:
  %row = phi i64 [ %first, %entry ], [ %next, %body ]
  %more = icmp ult i64 %row, 16
  br i1 %more, label %body, label %done
body:
  %place = call ptr @emulated_tile_row(i8 %tile, i64 %row)
  store {_WORDS} zeroinitializer, ptr %place
  %next = add i64 %row, 1
  br label %head
done:
  ret void
}}
"""

_MOVES = f"""
define void @emulated_tile_configure(ptr %layout) {{
entry:
  %palette = load i8, ptr %layout
  %known = icmp eq i8 %palette, 1
  call void @emulated_tile_check(i1 %known)
  %bytes = load <64 x i8>, ptr %layout
  store <64 x i8> %bytes, ptr @tile_configuration
  br label %head
head:
  %tile = phi i8 [ 0, %entry ], [ %next, %head ]
  call void @emulated_tile_clear(i8 %tile, i64 0)
  %next = add i8 %tile, 1
  %more = icmp ult i8 %next, 8
  br i1 %more, label %head, label %done
done:
  ret void
}}

define void @emulated_tile_release() {{
  store <64 x i8> zeroinitializer, ptr @tile_configuration
  ret void
}}

define void @emulated_tile_zero(i8 %tile) {{
  %rows = call i64 @emulated_tile_rows(i8 %tile)
  call void @emulated_tile_clear(i8 %tile, i64 0)
  ret void
}}

define void @emulated_tile_load(i8 %tile, ptr %memory, i64 %stride) {{
entry:
  %rows = call i64 @emulated_tile_rows(i8 %tile)
  %words = call i64 @emulated_tile_words(i8 %tile)
  %mask = call <16 x i1> @emulated_tile_mask(i64 %words)
  br label %body
body:
  %row = phi i64 [ 0, %entry ], [ %next, %body ]
  %offset = mul i64 %row, %stride
  %source = getelementptr i8, ptr %memory, i64 %offset
  %value = call {_WORDS} @llvm.masked.load.v16i32.p0(
      ptr %source, i32 1, <16 x i1> %mask, {_WORDS} zeroinitializer)
  %place = call ptr @emulated_tile_row(i8 %tile, i64 %row)
  store {_WORDS} %value, ptr %place
  %next = add i64 %row, 1
  %more = icmp ult i64 %next, %rows
  br i1 %more, label %body, label %done
done:
  call void @emulated_tile_clear(i8 %tile, i64 %rows)
  ret void
}}

define void @emulated_tile_store(i8 %tile, ptr %memory, i64 %stride) {{
entry:
  %rows = call i64 @emulated_tile_rows(i8 %tile)
  %words = call i64 @emulated_tile_words(i8 %tile)
  %mask = call <16 x i1> @emulated_tile_mask(i64 %words)
  br label %body
body:
  %row = phi i64 [ 0, %entry ], [ %next, %body ]
  %offset = mul i64 %row, %stride
  %target = getelementptr i8, ptr %memory, i64 %offset
  %place = call ptr @emulated_tile_row(i8 %tile, i64 %row)
  %value = load {_WORDS}, ptr %place
  call void @llvm.masked.store.v16i32.p0({_WORDS} %value, ptr %target, i32 1, <16 x i1> %mask)
  %next = add i64 %row, 1
  %more = icmp ult i64 %next, %rows
  br i1 %more, label %body, label %done
done:
  ret void
}}
"""


def _element(dtype: str, name: str, odd: bool, source: str) -> str:
    """The even or odd elements of a vector of pairs, as float32."""
    if dtype == "bfloat16":
        bits = f"and {_WORDS} {source}, splat (i32 -65536)"
        if not odd:
            bits = f"shl {_WORDS} {source}, splat (i32 16)"
        return f"""
  %{name}_bits = {bits}
  %{name}_raw = bitcast {_WORDS} %{name}_bits to {_VECTOR}
  %{name} = call {_VECTOR} @emulated_tile_flush({_VECTOR} %{name}_raw)"""
    return f"""
  %{name}_low = lshr {_WORDS} {source}, splat (i32 {16 if odd else 0})
  %{name}_short = trunc {_WORDS} %{name}_low to <16 x i16>
  %{name}_half = bitcast <16 x i16> %{name}_short to <16 x half>
  %{name} = fpext <16 x half> %{name}_half to {_VECTOR}"""


def _dot(dtype: str) -> str:
    def fma(half: str) -> str:
        return f"""
  %{half}_fma = call {_VECTOR} @llvm.fma.v16f32(
      {_VECTOR} %{half}_a, {_VECTOR} %{half}_b, {_VECTOR} %{half})
  %{half}_next = call {_VECTOR} @emulated_tile_flush({_VECTOR} %{half}_fma)"""

    elements = "".join(
        _element(dtype, f"{half}_{operand}", half == "odd", source)
        for half in ("even", "odd")
        for operand, source in (("a", "%pairs_a"), ("b", "%pairs_b"))
    )
    return f"""
define {_VECTOR} @emulated_tile_flush({_VECTOR} %value) {{
  %magnitude = call {_VECTOR} @llvm.fabs.v16f32({_VECTOR} %value)
  %small = fcmp olt {_VECTOR} %magnitude, splat (float 0x3810000000000000)
  %zero = call {_VECTOR} @llvm.copysign.v16f32({_VECTOR} zeroinitializer, {_VECTOR} %value)
  %flushed = select <16 x i1> %small, {_VECTOR} %zero, {_VECTOR} %value
  ret {_VECTOR} %flushed
}}

define void @emulated_tile_dot(i8 %c, i8 %a, i8 %b) {{
entry:
  %rows_c = call i64 @emulated_tile_rows(i8 %c)
  %rows_a = call i64 @emulated_tile_rows(i8 %a)
  %rows_b = call i64 @emulated_tile_rows(i8 %b)
  %words_c = call i64 @emulated_tile_words(i8 %c)
  %words_a = call i64 @emulated_tile_words(i8 %a)
  %words_b = call i64 @emulated_tile_words(i8 %b)
  %fits_m = icmp eq i64 %rows_c, %rows_a
  %fits_n = icmp eq i64 %words_c, %words_b
  %fits_k = icmp eq i64 %words_a, %rows_b
  %other_a = icmp ne i8 %c, %a
  %other_b = icmp ne i8 %c, %b
  %other = icmp ne i8 %a, %b
  call void @emulated_tile_check(i1 %other_a)
  call void @emulated_tile_check(i1 %other_b)
  call void @emulated_tile_check(i1 %other)
  call void @emulated_tile_check(i1 %fits_m)
  call void @emulated_tile_check(i1 %fits_n)
  call void @emulated_tile_check(i1 %fits_k)
  br label %row
row:
  %m = phi i64 [ 0, %entry ], [ %m_next, %finish ]
  %row_a = call ptr @emulated_tile_row(i8 %a, i64 %m)
  br label %step
step:
  %k = phi i64 [ 0, %row ], [ %k_next, %step ]
  %even = phi {_VECTOR} [ zeroinitializer, %row ], [ %even_next, %step ]
  %odd = phi {_VECTOR} [ zeroinitializer, %row ], [ %odd_next, %step ]
  %pair_place = getelementptr i32, ptr %row_a, i64 %k
  %pair = load i32, ptr %pair_place{_broadcast("pairs_a", "%pair", "i32", _WORDS)}
  %row_b = call ptr @emulated_tile_row(i8 %b, i64 %k)
  %pairs_b = load {_WORDS}, ptr %row_b{elements}{fma("even")}{fma("odd")}
  %k_next = add i64 %k, 1
  %more_k = icmp ult i64 %k_next, %rows_b
  br i1 %more_k, label %step, label %finish
finish:
  %both_raw = fadd {_VECTOR} %even_next, %odd_next
  %both = call {_VECTOR} @emulated_tile_flush({_VECTOR} %both_raw)
  %row_c = call ptr @emulated_tile_row(i8 %c, i64 %m)
  %before_raw = load {_VECTOR}, ptr %row_c
  %before = call {_VECTOR} @emulated_tile_flush({_VECTOR} %before_raw)
  %total_raw = fadd {_VECTOR} %before, %both
  %total = call {_VECTOR} @emulated_tile_flush({_VECTOR} %total_raw)
  %mask = call <16 x i1> @emulated_tile_mask(i64 %words_c)
  %kept = select <16 x i1> %mask, {_VECTOR} %total, {_VECTOR} zeroinitializer
  store {_VECTOR} %kept, ptr %row_c
  %m_next = add i64 %m, 1
  %more_m = icmp ult i64 %m_next, %rows_c
  br i1 %more_m, label %row, label %done
done:
  call void @emulated_tile_clear(i8 %c, i64 %rows_c)
  ret void
}}
"""
