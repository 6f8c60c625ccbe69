// Stands for Gloo's header, which LibTorch includes and does not ship: what LibTorch holds by pointer.
#pragma once

namespace gloo::transport {

class Device;
class UnboundBuffer;

}  // namespace gloo::transport
