#include "cli/app.h"
#include "cli/register_all.h"

int main(int argc, char** argv) {
  moetune::Registry registry;
  moetune::register_all(registry);
  return moetune::run_cli(argc, argv, registry);
}
