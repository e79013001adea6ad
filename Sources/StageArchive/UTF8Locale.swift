import Glibc

/// The character set UTF-8 for the calling thread.
///
/// libarchive converts names from and to the character set of the thread's locale, and warns of what
/// it cannot convert; in the C locale that is everything but ASCII.
@safe enum UTF8Locale {
    /// The locale, made once and kept.
    private nonisolated(unsafe) static let shared: locale_t? = unsafe newlocale(
        LC_CTYPE_MASK,
        "C.UTF-8",
        nil
    )

    /// Makes the locale, which reads files: to be called before the thread is confined.
    static func prepare() {
        _ = unsafe shared
    }

    /// Gives the thread the locale, and returns the one it had.
    static func enter() -> locale_t? {
        unsafe shared.flatMap { unsafe uselocale($0) }
    }

    /// Gives the thread back the locale that it had.
    static func leave(to previous: locale_t?) {
        if let previous = unsafe previous { unsafe _ = uselocale(previous) }
    }
}
