#include "cli/app.h"
#include "worker/worker.h"

namespace moetune {

void add_worker(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("worker", "Runs candidates for another moetune process; see docs/protocol.md");
  command->group("");  // not for people: left out of the help
  command->callback([&context] { context.exit_code = worker_main(context.registry); });
}

}  // namespace moetune
