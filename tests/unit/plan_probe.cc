// What plans hand to kernels, as text: a section for each plan, a line for each call. Addresses are
// made up, since nothing is read or written.
#include <cstdint>
#include <cstdio>
#include <string>

#include "cc/dispatch/kernel.h"
#include "cc/dispatch/product.h"

namespace {

using tf_tvm_ops::KernelArgs;
using tf_tvm_ops::Plan;
using tf_tvm_ops::Problem;
using tf_tvm_ops::Product;

class Printer final : public tf_tvm_ops::Kernel {
 public:
  explicit Printer(const Problem& problem) : problem_(problem) {}
  const Problem& problem() const override { return problem_; }
  const std::string& symbol() const override { return name_; }
  const std::string& target() const override { return name_; }
  const std::string& pack() const override { return name_; }
  const std::string& config() const override { return name_; }
  const tf_tvm_ops::Duels& duels() const override { return duels_; }
  const tf_tvm_ops::FallbackModel* model() const override { return nullptr; }
  bool Ready() const override { return true; }
  bool FailedOn(int) const override { return false; }
  void Fail(int, const std::string&) const override {}
  std::string Call(const KernelArgs& args) const override {
    const auto address = [](const void* pointer) {
      return static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(pointer));
    };
    std::printf("lhs %llu rhs %llu addend %llu out %llu kind %d matrices %d-%d\n",
                address(args.lhs), address(args.rhs), address(args.addend), address(args.out),
                static_cast<int>(args.addend_kind), static_cast<int>(args.begin),
                static_cast<int>(args.end));
    return {};
  }

 private:
  tf_tvm_ops::Duels duels_;
  const Problem problem_;
  const std::string name_ = "printer";
};

void* Address(uintptr_t address) { return reinterpret_cast<void*>(address); }

// float16 [2, 2, 2, 3, 4] of dense operands, each batch of the addend used twice: the outermost
// dimension is looped over.
Product MakeProduct(bool has_addend) {
  Product product;
  product.dtype = tf_tvm_ops::DType::kFloat16;
  product.m = 3;
  product.n = 4;
  product.k = 5;
  product.lhs.row_stride = 5;
  product.rhs.row_stride = product.out.row_stride = product.addend.row_stride = 4;
  product.lhs.column_stride = product.rhs.column_stride = 1;
  product.out.column_stride = product.addend.column_stride = 1;
  product.has_addend = has_addend;
  product.AddBatchDim(2, 60, 80, 48, 12);
  product.AddBatchDim(2, 30, 40, 24, 0);
  product.AddBatchDim(2, 15, 20, 12, 6);
  return product;
}

void Print(const char* title, const Plan& plan) {
  std::printf("\n%s\n", title);
  const std::string error = plan.Run(Printer(plan.problem()), 0, plan.size());
  if (!error.empty()) std::printf("%s\n", error.c_str());
}

}  // namespace

int main() {
  Plan plan;
  Plan::Make(MakeProduct(true), &plan);
  plan.Bind(Address(1000), Address(2000), Address(3000), Address(4000));
  Print("bound", plan);
  const Plan copy = plan;
  plan.Bind(Address(5000), Address(6000), Address(7000), Address(8000));
  Print("bound again", plan);
  Print("copied before", copy);

  Product product = MakeProduct(true);
  product.lhs.data = Address(1000);
  product.rhs.data = Address(2000);
  product.addend.data = Address(3000);
  product.out.data = Address(4000);
  Plan::Make(product, &plan);
  Print("with data", plan);

  Plan::Make(MakeProduct(false), &plan);
  plan.Bind(Address(1000), Address(2000), Address(3000), Address(4000));
  Print("without addend", plan);
}
