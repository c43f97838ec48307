/* Batches of small products by libxsmm, for the comparison in xsmm.py. */
#include <libxsmm.h>
#include <stddef.h>

/* c[i] = a[i]·b[i] for `batch` row-major matrices; with `lhs_transposed`, a[i] is stored [k, m].
 * With a `workspace` of k·n floats, b[i] is stored [n, k] and transposed to there first.
 * libxsmm is column-major: the transposed product b·a is the same memory.
 * Returns 0, or 1 where libxsmm makes no kernel for the problem. */
int tf_tvm_ops_bench_xsmm(const float* a, const float* b, float* c, long batch, int m, int n, int k,
                          int lhs_transposed, float* workspace) {
  const float alpha = 1.0f, beta = 0.0f;
  const int flags = lhs_transposed ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
  const libxsmm_blasint lda = n, ldb = lhs_transposed ? m : k, ldc = n;
  const libxsmm_smmfunction kernel =
      libxsmm_smmdispatch(n, m, k, &lda, &ldb, &ldc, &alpha, &beta, &flags, NULL);
  /* Also from column-major's view: k rows and n columns become n rows and k columns. */
  const libxsmm_trans_descriptor* descriptor = NULL;
  libxsmm_descriptor_blob blob;
  libxsmm_xtransfunction transpose = NULL;
  if (kernel == NULL) return 1;
  if (workspace != NULL) {
    descriptor = libxsmm_trans_descriptor_init(&blob, sizeof(float), k, n, n);
    transpose = libxsmm_dispatch_trans(descriptor);
  }
  for (long i = 0; i < batch; ++i) {
    const float* rhs = b + i * (ptrdiff_t)k * n;
    if (workspace != NULL) {
      const unsigned int from = (unsigned int)k, to = (unsigned int)n;
      if (transpose != NULL) {
        transpose(rhs, &from, workspace, &to);
      } else {
        libxsmm_otrans(workspace, rhs, sizeof(float), k, n, k, n);
      }
      rhs = workspace;
    }
    kernel(rhs, a + i * (ptrdiff_t)m * k, c + i * (ptrdiff_t)m * n);
  }
  return 0;
}
