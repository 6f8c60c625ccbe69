// Stands for Gloo's header, which LibTorch includes and does not ship: nothing of it is needed.
#pragma once
