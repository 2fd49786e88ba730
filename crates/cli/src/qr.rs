//! QR codes for terminals.

use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

/// Draws a text as a QR code, dark on light whatever the terminal's colours are.
///
/// # Errors
/// The text is too long for a QR code.
pub(crate) fn draw(text: &str) -> Result<String, String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L)
        .map_err(|_| "the link is too long for a QR code".to_owned())?;
    let image = code
        .render::<Dense1x2>()
        .dark_color(Dense1x2::Light)
        .light_color(Dense1x2::Dark)
        .quiet_zone(true)
        .build();
    Ok(image)
}
