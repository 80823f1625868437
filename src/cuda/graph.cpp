#include "cuda/graph.h"

#include <fmt/format.h>

#include <optional>

namespace moetune::cuda {

Result<Graph> Graph::capture(const Stream& stream, const std::function<Status()>& enqueue) {
  const auto& context = stream.context();
  const auto& api = context->api();
  MOETUNE_CHECK(
      context->check(api.stream_begin_capture(stream.raw(), cu::kCaptureThreadLocal), "cuStreamBeginCapture"));
  auto status = enqueue();
  cu::Graph raw = nullptr;
  const auto code = api.stream_end_capture(stream.raw(), &raw);
  Graph graph(Raw{context, raw});
  // What enqueue says went wrong comes before the end of the recording, which fails only because of it.
  MOETUNE_CHECK(std::move(status));
  MOETUNE_CHECK(context->check(code, "cuStreamEndCapture"));
  return graph;
}

Result<std::size_t> Graph::nodes() const {
  std::size_t count = 0;
  MOETUNE_CHECK(context()->check(context()->api().graph_get_nodes(raw(), nullptr, &count), "cuGraphGetNodes"));
  return count;
}

Result<GraphExec> GraphExec::instantiate(const Graph& graph) {
  const auto& context = graph.context();
  cu::GraphExec raw = nullptr;
  MOETUNE_CHECK(context->check(context->api().graph_instantiate(&raw, graph.raw(), 0), "cuGraphInstantiateWithFlags"));
  return GraphExec({context, raw});
}

Status GraphExec::upload(const Stream& stream) const {
  const auto& context = *exec_.context();
  return context.check(context.api().graph_upload(exec_.get(), stream.raw()), "cuGraphUpload");
}

Status GraphExec::launch(const Stream& stream) const {
  const auto& context = *exec_.context();
  return context.check(context.api().graph_launch(exec_.get(), stream.raw()), "cuGraphLaunch");
}

Result<TimedGraph> TimedGraph::capture(const Stream& stream, std::size_t laps,
                                       const std::function<Status(std::size_t)>& enqueue, Marks marks) {
  if (laps == 0) return fail("a timed graph needs at least one lap");
  std::vector<Event> events;
  const std::size_t marked = marks == Marks::laps ? laps : 1;
  for (std::size_t i = 0; i <= marked; ++i) {
    MOETUNE_TRY(auto event, Event::create(stream.context()));
    events.push_back(std::move(event));
  }
  const auto record = [&]() -> Status {
    MOETUNE_CHECK(events.front().record_in_graph(stream));
    for (std::size_t lap = 0; lap < laps; ++lap) {
      MOETUNE_CHECK(enqueue(lap));
      if (marks == Marks::laps) MOETUNE_CHECK(events[lap + 1].record_in_graph(stream));
    }
    if (marks == Marks::ends) MOETUNE_CHECK(events.back().record_in_graph(stream));
    return {};
  };
  MOETUNE_TRY(const auto graph, Graph::capture(stream, record));
  MOETUNE_TRY(auto exec, GraphExec::instantiate(graph));
  MOETUNE_CHECK(exec.upload(stream));
  return TimedGraph(std::move(exec), std::move(events), laps);
}

Result<std::vector<double>> TimedGraph::replay(const Stream& stream) const {
  MOETUNE_CHECK(exec_.launch(stream));
  MOETUNE_CHECK(stream.synchronize());
  std::vector<double> us;
  for (std::size_t i = 1; i < events_.size(); ++i) {
    MOETUNE_TRY(const double lap, elapsed_us(events_[i - 1], events_[i]));
    us.push_back(lap);
  }
  if (us.size() == 1) us.front() /= static_cast<double>(laps_);
  return us;
}

}  // namespace moetune::cuda
