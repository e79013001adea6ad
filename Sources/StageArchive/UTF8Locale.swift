import Glibc

/// Sets the calling thread's character set to UTF-8 for as long as it lives.
///
/// libarchive converts names from and to the character set of the thread's locale, and warns of what
/// it cannot convert; in the C locale that is everything but ASCII.
@safe struct UTF8Locale: ~Copyable {
    private let previous: locale_t?

    /// The locale, made once and kept.
    private nonisolated(unsafe) static let shared: locale_t? = unsafe newlocale(
        LC_CTYPE_MASK,
        "C.UTF-8",
        nil
    )

    init() {
        unsafe previous = Self.shared.flatMap { unsafe uselocale($0) }
    }

    deinit {
        if let previous = unsafe previous { unsafe _ = uselocale(previous) }
    }

    /// Makes the locale, which reads files: to be called before the thread is confined.
    static func prepare() {
        unsafe _ = Self.shared
    }
}
