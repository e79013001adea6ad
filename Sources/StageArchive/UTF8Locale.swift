import Glibc

/// The UTF-8 locale of the calling thread.
///
/// libarchive converts names to and from the character set of the thread's locale, and warns about characters
/// that it cannot convert: in the C locale, all except ASCII.
@safe enum UTF8Locale {
    /// The locale, created once.
    private nonisolated(unsafe) static let shared: locale_t? = unsafe newlocale(
        LC_CTYPE_MASK,
        "C.UTF-8",
        nil
    )

    /// Creates the locale, which reads files: call this before the thread is confined.
    static func prepare() {
        _ = unsafe shared
    }

    /// Sets the thread's locale, and returns the previous one.
    static func enter() -> locale_t? {
        unsafe shared.flatMap { unsafe uselocale($0) }
    }

    /// Restores the thread's previous locale.
    static func leave(to previous: locale_t?) {
        if let previous = unsafe previous { unsafe _ = uselocale(previous) }
    }
}
