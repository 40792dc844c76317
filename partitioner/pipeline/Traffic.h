// Transfers that share links, in the order of time.
//
// A link that cannot carry all transfers at full speed is divided among them in proportion to the rates that each would
// have alone; a transfer is as fast as its slowest link lets it be. Speeds change only when a transfer begins or ends.
// So at every instant the rates on a link sum to at most its rate. (What a transfer that another link slows leaves of a
// link is not given to others.)
#pragma once
#include <cstdint>
#include <optional>
#include <queue>
#include <span>
#include <vector>

namespace cleave::partitioner {

/// Transfers that move at the same times over the same links.
struct Flow {
  struct Use {
    uint32_t link; ///< number of the link
    double share;  ///< of the link, by all of the flow's transfers that use it, as if each were alone
  };
  double rate = 0;       ///< bytes per second of one transfer at full speed: of a message, or of a group's rings
  double stretch = 1;    ///< how much longer bytes move at full speed than alone: the flow's transfers share links
  std::vector<Use> uses; ///< of links that are shared
};

/// A time in which a transfer has one speed.
struct TransferPiece {
  uint32_t flow;     ///< index of the flow
  double begin, end; ///< seconds
  double speed;      ///< of Flow::rate; at most 1
};

class Traffic {
public:
  /// `flows` must outlive the traffic. `pieces`: null, or where to note the speeds of all transfers.
  Traffic(std::span<const Flow> flows, uint32_t links, std::vector<TransferPiece> *pieces);

  /// Adds a transfer that begins at `begin` and takes `seconds` at full speed, and returns its number. Not before the
  /// end of the last transfer that next() returned.
  uint32_t add(uint32_t flow, double begin, double seconds);

  struct Ended {
    uint32_t transfer;
    double time;
  };
  /// The transfer that ends next; none if none is left.
  std::optional<Ended> next();

private:
  struct Transfer {
    uint32_t flow, version; ///< version: number of changes of the speed
    double left, since, speed;
  };
  struct Event {
    double time;
    uint32_t transfer, version; ///< version 0: the transfer begins; otherwise it ends unless its speed changes before
    bool operator>(const Event &other) const {
      return time != other.time ? time > other.time : transfer > other.transfer;
    }
  };
  void change(double time, uint32_t flow);
  double mostOf(uint32_t link) const;
  void setSpeed(double time, uint32_t number);

  const std::span<const Flow> flows;
  std::vector<TransferPiece> *pieces;
  std::vector<Transfer> transfers;
  std::vector<std::vector<uint32_t>> active; ///< by link: transfers
  std::vector<double> most;                  ///< by link: the speed, of that alone, that its transfers may have
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
};

} // namespace cleave::partitioner
