// Stands for Gloo's header, which LibTorch includes and does not ship: a class that LibTorch holds by pointer.
#pragma once

namespace gloo::transport {

class Device;
class UnboundBuffer;

}  // namespace gloo::transport
