// What tf_tvm_ops/rewrite.py calls, through ctypes.
#ifndef TF_TVM_OPS_GRAPH_PASSES_HOOKS_C_API_H_
#define TF_TVM_OPS_GRAPH_PASSES_HOOKS_C_API_H_

#include <cstddef>

#include "cc/dispatch/export.h"

// Texts and buffers that are returned belong to the caller, who frees them with TfTvmOpsFree.
extern "C" {

TF_TVM_OPS_EXPORT void TfTvmOpsFree(void* buffer);

// "on", "off" or "report"; another text changes nothing. The mode is returned and not to be freed.
TF_TVM_OPS_EXPORT void TfTvmOpsSetRewriteMode(const char* mode);
TF_TVM_OPS_EXPORT const char* TfTvmOpsRewriteMode();

// As ReportText (graph_passes/report.h).
TF_TVM_OPS_EXPORT char* TfTvmOpsRewriteReport();
TF_TVM_OPS_EXPORT void TfTvmOpsClearRewriteReport();

// As TotalCost; graphs and nodes are counts.
TF_TVM_OPS_EXPORT void TfTvmOpsRewriteCost(long long* graphs, long long* nodes, double* seconds);

// "name<tab>sentence" lines of all reasons.
TF_TVM_OPS_EXPORT char* TfTvmOpsRewriteReasons();

// Rewrites, or reverts, a serialised GraphDef with the functions of its library. `outputs` are
// names of nodes, separated by line breaks. Returns null and sets the new graph and its report; or
// returns what went wrong.
TF_TVM_OPS_EXPORT char* TfTvmOpsRewriteGraphDef(const char* graph, size_t size, const char* outputs,
                                                int revert, char** new_graph, size_t* new_size,
                                                char** report);
}

#endif  // TF_TVM_OPS_GRAPH_PASSES_HOOKS_C_API_H_
