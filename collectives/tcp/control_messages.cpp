// SPDX-License-Identifier: Apache-2.0
// Sends and receives control messages, and handles the end of a control connection.
#include "collectives/tcp/control_messages.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "topology/base/text.hpp"

namespace lockstep::tcp {

ControlStream& ControlMessages::stream(int peer) {
  std::unique_ptr<ControlStream>& stream = streams_[peer];
  if (!stream) stream = std::make_unique<ControlStream>();
  return *stream;
}

// Watches the process itself, because its connections stay open if a child of it holds them.
void ControlMessages::open(int peer, Descriptor socket) {
  poll_.add(socket.get(), {EventSource::control, peer, control_channel}, EPOLLIN);
  stream(peer).open(std::move(socket));
  if (const auto& process = members_.roster().process_of(peer))
    poll_.add(process->descriptor(), {EventSource::process, peer}, EPOLLIN);
  move(peer);
}

void ControlMessages::send_control(int peer, Bytes message) {
  if (peer == members_.rank()) {
    received_.push_back({peer, std::move(message)});
    return;
  }
  if (failures_.has_left(peer) || connections_.state(peer, control_channel) == ConnectionState::over) return;
  stream(peer).post_control(std::move(message));
  connections_.connect(peer, control_channel);
  flush(peer);
}

bool ControlMessages::is_told(int peer) const {
  const auto found = streams_.find(peer);
  return found == streams_.end() || !found->second->has_unsent() || failures_.has_left(peer) ||
         connections_.state(peer, control_channel) == ConnectionState::over;
}

std::optional<Transport::ReceivedControl> ControlMessages::next() {
  if (received_.empty()) return std::nullopt;
  Transport::ReceivedControl next = std::move(received_.front());
  received_.pop_front();
  return next;
}

void ControlMessages::post_send(int peer, const PostedSend& sending) {
  stream(peer).post_send(sending);
  connections_.connect(peer, control_channel);
  flush(peer);
}

// Flushes, because the message may be offered already, and then its data is requested.
void ControlMessages::post_receive(int peer, const PostedReceive& want) {
  stream(peer).post_receive(want);
  flush(peer);
}

void ControlMessages::check_lengths(std::span<const int> peers) {
  for (const int each : peers) {
    const auto& mismatch = stream(each).length_mismatch();
    if (mismatch) errors_.report_length(each, mismatch->sent, members_.rank(), mismatch->wanted);
  }
}

void ControlMessages::move(int peer) {
  const auto outcome = receive(peer);
  if (outcome.is_over) return end(peer, outcome.error);
  flush(peer);
}

void ControlMessages::flush(int peer) {
  ControlStream& stream = this->stream(peer);
  if (!stream.is_open()) return;
  const bool had_unsent = stream.has_unsent();
  const auto outcome = stream.flush();
  errors_.report(outcome.bad);
  if (outcome.is_over) {
    receive(peer);  // it may have said farewell before
    return end(peer, outcome.error);
  }
  if (had_unsent || stream.has_unsent())
    poll_.change(stream.socket().descriptor().get(), stream.has_unsent() ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

ControlProgress ControlMessages::receive(int peer) {
  ControlStream& stream = this->stream(peer);
  const auto outcome = stream.receive(just_received_);
  errors_.report(outcome.bad);
  for (Bytes& each : just_received_) received_.push_back({peer, std::move(each)});
  just_received_.clear();
  if (stream.has_farewell()) failures_.set_left(peer);
  return outcome;
}

// Assumes that all earlier messages of that rank were read.
void ControlMessages::end(int peer, int error) {
  ControlStream& stream = this->stream(peer);
  poll_.remove(stream.socket().descriptor().get());
  stream.close();
  connections_.set_over(peer, control_channel);
  if (failures_.has_left(peer)) return;
  if (error == ETIMEDOUT || has_no_route(error)) return failures_.lose(peer, failures_.silence_of_host(error), error);
  const bool is_reset = error == ECONNRESET || error == EPIPE;
  failures_.lose(peer,
                 error == 0 ? "was closed"
                 : is_reset ? "was reset"
                            : text("failed: ", std::strerror(error)),
                 error, true);
}

// Reads the last messages of these ranks first, since they may say that they have left.
void ControlMessages::end_process(int descriptor) {
  poll_.remove(descriptor);
  for (const auto& [peer, stream] : streams_) {
    const auto& process = members_.roster().process_of(peer);
    if (!process || process->descriptor() != descriptor || !stream->is_open()) continue;
    move(peer);
    failures_.lose(peer, "its process has exited or was killed", ECONNREFUSED);
  }
}

bool ControlMessages::has_unsent() const {
  return std::ranges::any_of(streams_, [](const auto& each) { return each.second->has_unsent(); });
}

const StreamSocket* ControlMessages::socket_of(int peer) const {
  const auto found = streams_.find(peer);
  return found != streams_.end() && found->second->is_open() ? &found->second->socket() : nullptr;
}

void ControlMessages::give_up() {
  for (auto& [peer, stream] : streams_) stream->drop_posted();
}

void ControlMessages::leave(const Bytes& message) {
  for (auto& [peer, stream] : streams_) {
    if (!stream->is_open()) continue;
    stream->post_control(message);
    flush(peer);
  }
  leave_message_ = message;
}

Acceptor::LeaveMessages ControlMessages::close(Acceptor& acceptor) {
  Acceptor::LeaveMessages messages;
  ControlStream others;
  if (!leave_message_.empty()) others.post_control(leave_message_);
  others.post_farewell();
  messages.others = others.release().second;
  connections_.for_each_peer([&](int peer) { close(peer, stream(peer), acceptor, messages); });
  return messages;
}

// Sees to it that the last messages reach the peer, and that its unread messages cause no reset.
void ControlMessages::close(int peer, ControlStream& stream, Acceptor& acceptor, Acceptor::LeaveMessages& messages) {
  const bool is_open = stream.is_open();
  const ConnectionState state = connections_.state(peer, control_channel);
  if (state == ConnectionState::over) return;
  if (!is_open && state != ConnectionState::connecting && !stream.has_unsent()) return;
  if (!is_open && !leave_message_.empty()) stream.post_control(leave_message_);
  stream.post_farewell();
  stream.flush();
  auto [socket, rest] = stream.release();
  if (is_open) return acceptor.close_connection(std::move(socket), std::move(rest));
  messages.own[static_cast<std::uint32_t>(peer)] = rest;  // in case the other side's connection counts
  if (auto handshake = connections_.release_handshake(peer, control_channel))
    acceptor.close_connection(std::move(*handshake), std::move(rest));
}

}  // namespace lockstep::tcp
