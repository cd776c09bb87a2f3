//! Renders SVG as PNG.

use super::outline::Faces;
use super::{Figure, standalone_svg};
use resvg::{tiny_skia, usvg};

/// An error of rendering a figure as PNG.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum PngError {
    #[error("cannot parse the SVG of figure {figure}: {reason}")]
    Svg { figure: String, reason: String },
    #[error("cannot render figure {figure} at {width} × {height} pixels: {reason}")]
    Draw { figure: String, width: u32, height: u32, reason: String },
}

/// Renders a figure as PNG with `scale` pixels per unit (2 is print quality: 1,880 pixels for a full-width figure).
///
/// Text uses the embedded Inter font, so that the image is the same on every machine.
pub fn write_png(figure: &Figure, scale: f32) -> Result<Vec<u8>, PngError> {
    let svg_error = |reason: String| PngError::Svg { figure: figure.id.clone(), reason };
    let svg = Faces::embedded().outline(&standalone_svg(figure)).map_err(|e| svg_error(e.to_string()))?;
    let tree = usvg::Tree::from_str(&svg, &usvg::Options::default()).map_err(|e| svg_error(e.to_string()))?;
    let size = tree.size();
    let (width, height) = ((size.width() * scale).ceil() as u32, (size.height() * scale).ceil() as u32);
    let failed = |reason: String| PngError::Draw { figure: figure.id.clone(), width, height, reason };
    let mut pixels = tiny_skia::Pixmap::new(width, height)
        .ok_or_else(|| failed("the image does not fit into memory".into()))?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(scale, scale), &mut pixels.as_mut());
    encode(width, height, &pixels.take_demultiplied()).map_err(|e| failed(e.to_string()))
}

/// Encodes with fast compression, because the end of a run waits for its report. One filter for all lines is as good as a
/// choice for each, which takes nine times as long.
fn encode(width: u32, height: u32, rgba: &[u8]) -> Result<Vec<u8>, ::png::EncodingError> {
    let mut file = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut file, width, height);
    encoder.set_color(::png::ColorType::Rgba);
    encoder.set_depth(::png::BitDepth::Eight);
    encoder.set_compression(::png::Compression::Fast);
    encoder.set_filter(::png::Filter::Paeth);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(rgba)?;
    writer.finish()?;
    Ok(file)
}
