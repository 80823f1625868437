// Graphs: a sequence of launches recorded once and replayed without the host in between, and timed.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "cuda/stream.h"

namespace moetune::cuda {

/// A recorded sequence. Move-only.
class Graph {
 public:
  /// What `enqueue` puts on the stream, which does not run meanwhile. An Error of enqueue ends the recording and is
  /// passed on.
  [[nodiscard]] static Result<Graph> capture(const Stream& stream, const std::function<Status()>& enqueue);
  /// Number of launches, copies and event records in it.
  [[nodiscard]] Result<std::size_t> nodes() const;
  [[nodiscard]] cu::Graph raw() const { return graph_.get(); }
  [[nodiscard]] const ContextRef& context() const { return graph_.context(); }

 private:
  using Raw = Owned<cu::Graph, &DriverApi::graph_destroy>;
  explicit Graph(Raw graph) : graph_(std::move(graph)) {}
  Raw graph_;
};

/// A graph made ready to launch. Move-only. What its launches use (buffers, modules, events) outlives it.
class GraphExec {
 public:
  [[nodiscard]] static Result<GraphExec> instantiate(const Graph& graph);
  /// Brings it to the device ahead of the first launch, so that this is no slower than the others.
  [[nodiscard]] Status upload(const Stream& stream) const;
  [[nodiscard]] Status launch(const Stream& stream) const;

 private:
  using Raw = Owned<cu::GraphExec, &DriverApi::graph_exec_destroy>;
  explicit GraphExec(Raw exec) : exec_(std::move(exec)) {}
  Raw exec_;
};

/// Where a timed graph looks at the device's clock.
enum class Marks {
  ends,  ///< before the first lap and after the last: nothing between the laps, which follow each other as in a server
  laps   ///< also between the laps: a time for each, at the price of a gap of about a microsecond
};

/// Laps of work in one graph, timed by events inside it, so that no time of the host counts. Move-only.
class TimedGraph {
 public:
  /// `enqueue(lap)` puts the work of that lap on the stream; laps ≥ 1.
  [[nodiscard]] static Result<TimedGraph> capture(const Stream& stream, std::size_t laps,
                                                  const std::function<Status(std::size_t)>& enqueue, Marks marks);
  /// Launches once, waits, and returns microseconds: of each lap (Marks::laps), or one number, the mean of the laps
  /// (Marks::ends).
  [[nodiscard]] Result<std::vector<double>> replay(const Stream& stream) const;

 private:
  TimedGraph(GraphExec exec, std::vector<Event> events, std::size_t laps)
      : exec_(std::move(exec)), events_(std::move(events)), laps_(laps) {}
  GraphExec exec_;
  std::vector<Event> events_;
  std::size_t laps_;
};

}  // namespace moetune::cuda
