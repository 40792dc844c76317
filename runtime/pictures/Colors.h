// Changes of a picture's colours, with the arithmetic of Pillow: ImageEnhance for the first three, 8-bit HSV for the
// hue.
#pragma once
#include "cleave/Random.h"
#include "runtime/pictures/Picture.h"

namespace cleave {

void changeBrightness(Picture &picture, float factor);
void changeContrast(Picture &picture, float factor);
void changeSaturation(Picture &picture, float factor);
/// `part` of the circle of colours, in [-0.5, 0.5].
void turnHue(Picture &picture, double part);

/// What ColorJitter does.
void jitter(Picture &picture, const ColorJitter &by, Random random);

} // namespace cleave
