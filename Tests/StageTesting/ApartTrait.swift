public import Testing

/// Marks tests that run beside each other, and after all others.
///
/// For tests that act at a moment of what programs do, and would come too late where every processor is busy. `make test`
/// finds them by this trait (`Scripts/tests-with`), as it does those with `.alone`.
public struct ApartTrait: TestTrait, SuiteTrait {
    /// Whether the tests of a suite inherit the trait.
    public let isRecursive = true
}

extension Trait where Self == ApartTrait {
    /// Runs the tests apart from those without this trait.
    public static var apart: Self { Self() }
}
