// The tests, and when called with "worker" the worker that they run.
#include <gtest/gtest.h>

#include <string_view>

#include "faulty_backend.h"
#include "worker/worker.h"

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "worker") {
    const moetune::Registry registry = moetune::faulty_registry();
    return moetune::worker_main(registry);
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
