/* tile_times.h - the shapes of tiles and what they cost, by which a kernel chooses. Written by
 * scripts/figures_page.py from scripts/figures/tiles.csv: change that, with how it was measured.
 * H200, 2026-11-27.
 *
 *   TILE(outputs of a tile; tokens; tiles of 64 inputs a stage;
 *        most stages; µs of 64 inputs; µs of adding up cut tiles) */
#pragma once

/* clang-format off */
#define AWQ_WGMMA_TILES(TILE) \
  TILE(128, 64, 2, 7, 0.241, 6) \
  TILE(128, 96, 2, 6, 0.32, 7) \
  TILE(128, 128, 2, 5, 0.383, 8) \
  TILE(128, 160, 2, 4, 0.448, 10) \
  TILE(128, 192, 2, 3, 0.522, 12) \
  TILE(128, 256, 1, 5, 0.677, 14) \
  TILE(192, 96, 2, 5, 0.441, 10) \
  TILE(192, 128, 2, 3, 0.541, 12) \
  TILE(64, 128, 2, 5, 0.214, 5) \
  TILE(64, 192, 2, 4, 0.297, 7) \
  TILE(64, 16, 2, 12, 0.139, 5) \
  TILE(64, 64, 2, 12, 0.156, 5) \
  TILE(192, 16, 2, 8, 0.3, 5) \
  TILE(192, 64, 2, 6, 0.344, 6)
#define DENSE_WGMMA_TILES(TILE) \
  TILE(64, 64, 1, 0, 0.15, 0) \
  TILE(64, 128, 1, 0, 0.2, 0) \
  TILE(128, 64, 1, 0, 0.236, 0) \
  TILE(128, 128, 1, 0, 0.32, 0) \
  TILE(128, 256, 1, 0, 0.62, 0)
/* clang-format on */
