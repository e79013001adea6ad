package import Testing

/// Marks tests that wait for minutes and compute little, such as those of servers that send nothing.
///
/// `make test` runs them in a separate process, in parallel with the others, so that they do not delay tests that compute. It finds
/// them by this trait (`Scripts/tests-with`), like those with `.alone`.
package struct WaitingTrait: TestTrait, SuiteTrait {
    /// The tests of a suite inherit the trait.
    package let isRecursive = true
}

extension Trait where Self == WaitingTrait {
    /// Runs the tests in parallel with those without this trait.
    package static var waiting: Self { Self() }
}
