//! Bounded least squares for the scaling law.
//!
//! No library is used, because the `levenberg-marquardt` crate does not support bounds, and a change of variables that
//! hides them (for example a logistic for A) moves the optimum of a fit at a bound and flattens it elsewhere, so that
//! it no longer agrees with SciPy's bounded `curve_fit`. With three parameters, the method is short: a grid over (ln
//! C_mid, ln B) with A solved exactly (it is linear), Levenberg-Marquardt with an active set from the best valleys of
//! the grid, and Newton steps on the exact Hessian at the end, which determine the parameters to rounding error even in
//! a flat valley.

// 3 × 3 matrices are clearest with explicit indices.
#![allow(clippy::needless_range_loop)]

use super::law::logistic;

/// Points of a curve relative to its first one: `x = ln C` and `y = R - R_0`, C > 0.
#[derive(Clone, Debug)]
pub(super) struct Points {
    pub x: Vec<f64>,
    pub y: Vec<f64>,
}

/// `[A - R_0, ln C_mid, ln B]`.
pub(super) type Theta = [f64; 3];

/// Bounds of the parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub lower: Theta,
    pub upper: Theta,
}

impl Bounds {
    fn clamp(&self, theta: Theta) -> Theta {
        std::array::from_fn(|i| theta[i].clamp(self.lower[i], self.upper[i]))
    }

    /// Returns which parameters may move: those inside the bounds, and those on a bound that the descent leads away from.
    fn free(&self, theta: &Theta, gradient: &Theta) -> [bool; 3] {
        std::array::from_fn(|i| {
            let held_below = theta[i] <= self.lower[i] && gradient[i] > 0.0;
            let held_above = theta[i] >= self.upper[i] && gradient[i] < 0.0;
            !(held_below || held_above)
        })
    }
}

/// A minimum of the sum of squares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Minimum {
    pub theta: Theta,
    /// Half the sum of squared residuals.
    pub cost: f64,
}

/// Minimises the sum of squares within the bounds, from several starting points.
pub(super) fn minimise(points: &Points, bounds: &Bounds) -> Minimum {
    let mut best: Option<Minimum> = None;
    for start in starts(points, bounds) {
        let found = polish(points, bounds, descend(points, bounds, start));
        if best.is_none_or(|b| found.cost < b.cost) {
            best = Some(found);
        }
    }
    best.unwrap_or_else(|| {
        let theta = bounds.lower;
        Minimum { theta, cost: cost(points, &theta) }
    })
}

const GRID_MIDPOINT: usize = 33;
const GRID_STEEPNESS: usize = 13;
const MAX_STARTS: usize = 6;

/// Returns the lowest local minima of the cost on a grid over (ln C_mid, ln B), with the best A at each node.
fn starts(points: &Points, bounds: &Bounds) -> Vec<Theta> {
    let node = |axis: usize, i: usize, n: usize| {
        bounds.lower[axis] + (bounds.upper[axis] - bounds.lower[axis]) * (i as f64 + 0.5) / n as f64
    };
    let mut grid = Vec::with_capacity(GRID_MIDPOINT * GRID_STEEPNESS);
    for i in 0..GRID_MIDPOINT {
        for j in 0..GRID_STEEPNESS {
            let theta = best_gain(points, bounds, node(1, i, GRID_MIDPOINT), node(2, j, GRID_STEEPNESS));
            grid.push((cost(points, &theta), theta));
        }
    }
    let at = |i: usize, j: usize| grid[i * GRID_STEEPNESS + j].0;
    let is_valley = |i: usize, j: usize| {
        let rows = i.saturating_sub(1)..=(i + 1).min(GRID_MIDPOINT - 1);
        rows.flat_map(|a| (j.saturating_sub(1)..=(j + 1).min(GRID_STEEPNESS - 1)).map(move |b| (a, b)))
            .all(|(a, b)| at(a, b) >= at(i, j))
    };
    let mut valleys: Vec<(f64, Theta)> = (0..GRID_MIDPOINT)
        .flat_map(|i| (0..GRID_STEEPNESS).map(move |j| (i, j)))
        .filter(|&(i, j)| is_valley(i, j))
        .map(|(i, j)| grid[i * GRID_STEEPNESS + j])
        .collect();
    valleys.sort_by(|a, b| a.0.total_cmp(&b.0));
    valleys.truncate(MAX_STARTS);
    valleys.into_iter().map(|(_, theta)| theta).collect()
}

/// Returns the least-squares value of A - R_0, in which the law is linear, for given C_mid and B, within the bounds.
fn best_gain(points: &Points, bounds: &Bounds, log_midpoint: f64, log_steepness: f64) -> Theta {
    let steepness = log_steepness.exp();
    let (mut ss, mut sy) = (0.0, 0.0);
    for (&x, &y) in points.x.iter().zip(&points.y) {
        let s = logistic(steepness * (x - log_midpoint));
        ss += s * s;
        sy += s * y;
    }
    let gain = if ss > 0.0 { sy / ss } else { 0.0 };
    bounds.clamp([gain, log_midpoint, log_steepness])
}

fn cost(points: &Points, theta: &Theta) -> f64 {
    let steepness = theta[2].exp();
    let squares = points.x.iter().zip(&points.y).map(|(&x, &y)| {
        let r = theta[0] * logistic(steepness * (x - theta[1])) - y;
        r * r
    });
    0.5 * squares.sum::<f64>()
}

/// Returns the residuals and their derivatives with respect to `theta`, row by row.
fn rows(points: &Points, theta: &Theta) -> impl Iterator<Item = (f64, Theta)> {
    let [gain, log_midpoint, log_steepness] = *theta;
    let steepness = log_steepness.exp();
    points.x.iter().zip(&points.y).map(move |(&x, &y)| {
        let u = steepness * (x - log_midpoint);
        let s = logistic(u);
        let slope = gain * s * (1.0 - s);
        (gain * s - y, [s, -slope * steepness, slope * u])
    })
}

fn gradient(points: &Points, theta: &Theta) -> Theta {
    let mut g = [0.0; 3];
    for (r, row) in rows(points, theta) {
        for i in 0..3 {
            g[i] += r * row[i];
        }
    }
    g
}

const MAX_ITERATIONS: usize = 500;

/// Minimises by Levenberg-Marquardt with Marquardt's scaling. Parameters at a bound are excluded from the step.
fn descend(points: &Points, bounds: &Bounds, start: Theta) -> Minimum {
    let mut theta = bounds.clamp(start);
    let mut current = cost(points, &theta);
    let mut damping = 1e-3;
    for _ in 0..MAX_ITERATIONS {
        let free = bounds.free(&theta, &gradient(points, &theta));
        let Some(step) = damped_step(points, &theta, &free, damping) else { break };
        let next = bounds.clamp(std::array::from_fn(|i| theta[i] + step[i]));
        let next_cost = cost(points, &next);
        let moved = (0..3).map(|i| (next[i] - theta[i]).abs()).fold(0.0, f64::max);
        if next_cost < current {
            (theta, current) = (next, next_cost);
            damping = (damping * 0.2).max(1e-15);
        } else {
            damping *= 4.0;
        }
        if moved < 1e-13 || damping > 1e12 {
            break;
        }
    }
    Minimum { theta, cost: current }
}

/// Returns the step p that minimises `|J p + r|² + damping · |D p|²`, where D has the lengths of the columns, by
/// Householder QR.
fn damped_step(points: &Points, theta: &Theta, free: &[bool; 3], damping: f64) -> Option<Theta> {
    let mut matrix: Vec<[f64; 4]> = rows(points, theta)
        .map(|(r, row)| {
            let [a, b, c] = std::array::from_fn(|i| if free[i] { row[i] } else { 0.0 });
            [a, b, c, -r]
        })
        .collect();
    let lengths: Theta = std::array::from_fn(|i| matrix.iter().map(|m| m[i] * m[i]).sum::<f64>().sqrt());
    for i in 0..3 {
        let mut row = [0.0; 4];
        row[i] = if lengths[i] > 0.0 { damping.sqrt() * lengths[i] } else { 1.0 };
        matrix.push(row);
    }
    let triangle = triangular(&mut matrix)?;
    let step = back_substitute(&triangle);
    step.iter().all(|s| s.is_finite()).then_some(step)
}

/// Reduces the rows `[J | b]` to upper triangular form in place and returns the top three rows.
fn triangular(matrix: &mut [[f64; 4]]) -> Option<[[f64; 4]; 3]> {
    for k in 0..3 {
        let norm = matrix.get(k..)?.iter().map(|m| m[k] * m[k]).sum::<f64>().sqrt();
        if norm == 0.0 || !norm.is_finite() {
            return None;
        }
        let alpha = if matrix[k][k] > 0.0 { -norm } else { norm };
        let mut v: Vec<f64> = matrix[k..].iter().map(|m| m[k]).collect();
        v[0] -= alpha;
        let v_squared = v.iter().map(|a| a * a).sum::<f64>();
        if v_squared == 0.0 {
            continue;
        }
        for column in k..4 {
            let dot: f64 = v.iter().zip(&matrix[k..]).map(|(a, m)| a * m[column]).sum();
            let scale = 2.0 * dot / v_squared;
            for (a, m) in v.iter().zip(&mut matrix[k..]) {
                m[column] -= scale * a;
            }
        }
    }
    Some([matrix[0], matrix[1], matrix[2]])
}

fn back_substitute(triangle: &[[f64; 4]; 3]) -> Theta {
    let mut p = [0.0; 3];
    for i in (0..3).rev() {
        let known: f64 = (i + 1..3).map(|j| triangle[i][j] * p[j]).sum();
        p[i] = (triangle[i][3] - known) / triangle[i][i];
    }
    p
}

/// Takes Newton steps on the exact Hessian while they reduce the scaled gradient. Near the minimum, the gradient resolves
/// the parameters better than the cost.
fn polish(points: &Points, bounds: &Bounds, from: Minimum) -> Minimum {
    let mut theta = from.theta;
    let mut size = gradient_size(points, bounds, &theta);
    for _ in 0..50 {
        let g = gradient(points, &theta);
        let free = bounds.free(&theta, &g);
        let Some(step) = newton_step(points, &theta, &g, &free) else { break };
        let next = bounds.clamp(std::array::from_fn(|i| theta[i] + step[i]));
        let next_size = gradient_size(points, bounds, &next);
        if next_size >= size || cost(points, &next) > from.cost * (1.0 + 1e-9) {
            break;
        }
        (theta, size) = (next, next_size);
    }
    Minimum { theta, cost: cost(points, &theta) }
}

/// Returns the length of the gradient over the free parameters, each scaled by the length of its column.
fn gradient_size(points: &Points, bounds: &Bounds, theta: &Theta) -> f64 {
    let g = gradient(points, theta);
    let free = bounds.free(theta, &g);
    let mut lengths = [0.0; 3];
    for (_, row) in rows(points, theta) {
        for i in 0..3 {
            lengths[i] += row[i] * row[i];
        }
    }
    (0..3).filter(|&i| free[i] && lengths[i] > 0.0).map(|i| g[i] * g[i] / lengths[i]).sum::<f64>().sqrt()
}

fn newton_step(points: &Points, theta: &Theta, g: &Theta, free: &[bool; 3]) -> Option<Theta> {
    let mut h = hessian(points, theta);
    let mut rhs = *g;
    for i in 0..3 {
        if !free[i] {
            for j in 0..3 {
                h[i][j] = 0.0;
                h[j][i] = 0.0;
            }
            h[i][i] = 1.0;
            rhs[i] = 0.0;
        }
    }
    let mut matrix: Vec<[f64; 4]> = (0..3).map(|i| [h[i][0], h[i][1], h[i][2], -rhs[i]]).collect();
    let step = back_substitute(&triangular(&mut matrix)?);
    step.iter().all(|s| s.is_finite()).then_some(step)
}

/// Returns the second derivatives of the cost with respect to `theta`.
fn hessian(points: &Points, theta: &Theta) -> [[f64; 3]; 3] {
    let [gain, log_midpoint, log_steepness] = *theta;
    let b = log_steepness.exp();
    let mut h = [[0.0; 3]; 3];
    for (&x, &y) in points.x.iter().zip(&points.y) {
        let u = b * (x - log_midpoint);
        let s = logistic(u);
        let s1 = s * (1.0 - s);
        let s2 = s1 * (1.0 - 2.0 * s);
        let r = gain * s - y;
        let d = [s, -gain * s1 * b, gain * s1 * u];
        let dd = [
            [0.0, -b * s1, u * s1],
            [-b * s1, gain * b * b * s2, -gain * b * (u * s2 + s1)],
            [u * s1, -gain * b * (u * s2 + s1), gain * (u * u * s2 + u * s1)],
        ];
        for i in 0..3 {
            for j in 0..3 {
                h[i][j] += d[i] * d[j] + r * dd[i][j];
            }
        }
    }
    h
}

/// Computes `(Jᵀ J)⁻¹` from rows of derivatives, by a QR decomposition of the columns scaled to length 1. Returns `None` if
/// J does not have full rank to working precision.
pub(super) fn inverse_normal(rows: impl Iterator<Item = [f64; 3]>) -> Option<[[f64; 3]; 3]> {
    let mut matrix: Vec<[f64; 4]> = rows.map(|[a, b, c]| [a, b, c, 0.0]).collect();
    let lengths: [f64; 3] = std::array::from_fn(|i| matrix.iter().map(|m| m[i] * m[i]).sum::<f64>().sqrt());
    if lengths.iter().any(|l| *l <= 0.0 || !l.is_finite()) {
        return None;
    }
    for row in &mut matrix {
        for i in 0..3 {
            row[i] /= lengths[i];
        }
    }
    let r = triangular(&mut matrix)?;
    let tolerance = f64::EPSILON * matrix.len().max(3) as f64;
    if (0..3).any(|i| r[i][i].abs() <= tolerance) {
        return None;
    }
    // Compute the columns of R⁻¹, then R⁻¹ R⁻ᵀ, scaled back.
    let mut inverse = [[0.0; 3]; 3];
    for k in 0..3 {
        let mut system = r;
        for (i, row) in system.iter_mut().enumerate() {
            row[3] = if i == k { 1.0 } else { 0.0 };
        }
        let column = back_substitute(&system);
        for i in 0..3 {
            inverse[i][k] = column[i];
        }
    }
    Some(std::array::from_fn(|i| {
        std::array::from_fn(|j| {
            (0..3).map(|k| inverse[i][k] * inverse[j][k]).sum::<f64>() / (lengths[i] * lengths[j])
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points() -> Points {
        let x: Vec<f64> = (1..40).map(|i| (f64::from(i) * 1e4).ln()).collect();
        let y = x
            .iter()
            .enumerate()
            .map(|(i, x)| 0.4 * logistic(0.9 * (x - 11.5)) + 0.004 * ((i * 7919) as f64).sin())
            .collect();
        Points { x, y }
    }

    #[test]
    fn hessian_is_the_derivative_of_the_gradient() {
        let (points, theta) = (points(), [0.5, 11.0, 0.2]);
        let h = hessian(&points, &theta);
        for j in 0..3 {
            let at = |delta: f64| {
                let mut t = theta;
                t[j] += delta;
                gradient(&points, &t)
            };
            let (above, below) = (at(1e-5), at(-1e-5));
            for i in 0..3 {
                let numeric = (above[i] - below[i]) / 2e-5;
                assert!(
                    (h[i][j] - numeric).abs() < 1e-6 * (1.0 + h[i][j].abs()),
                    "{i}{j} {numeric} {}",
                    h[i][j]
                );
            }
        }
    }

    #[test]
    fn gradient_vanishes_at_the_minimum() {
        let points = points();
        let bounds = Bounds { lower: [0.0, 5.0, -3.0], upper: [1.0, 20.0, 3.0] };
        let found = minimise(&points, &bounds);
        assert!(gradient_size(&points, &bounds, &found.theta) < 1e-14, "{found:?}");
    }

    #[test]
    fn the_other_parameters_are_optimal_if_one_is_at_its_bound() {
        let points = points();
        let bounds = Bounds { lower: [0.0, 5.0, -3.0], upper: [0.3, 20.0, 3.0] };
        let found = minimise(&points, &bounds);
        assert_eq!(found.theta[0], 0.3);
        let g = gradient(&points, &found.theta);
        assert!(g[0] < 0.0 && g[1].abs() < 1e-12 && g[2].abs() < 1e-12, "{g:?}");
    }

    #[test]
    fn inverse_of_a_rank_deficient_matrix_is_none() {
        assert!(inverse_normal([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 1.0, 1.0]].into_iter()).is_none());
        let inverse =
            inverse_normal([[2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 5.0]].into_iter()).unwrap();
        assert!((inverse[0][0] - 0.25).abs() < 1e-15 && (inverse[2][2] - 0.04).abs() < 1e-15);
    }
}
