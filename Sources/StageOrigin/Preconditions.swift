import StageModel

/// Validators of a representation.
struct Validators: Equatable, Sendable {
    /// Strong entity tag.
    var tag: EntityTag
    /// Time of the last change.
    var modified: HTTPDate
}

/// Conditional header fields of a request, as they were sent (RFC 9110 §13.1).
struct Preconditions: Equatable, Sendable {
    var ifMatch: String?
    var ifNoneMatch: String?
    var ifModifiedSince: String?
    var ifUnmodifiedSince: String?
    var ifRange: String?

    /// Result of evaluating the conditions.
    enum Outcome: Equatable, Sendable {
        /// Process the request; `honoringRange` is `true` if its `Range` field applies.
        case proceed(honoringRange: Bool)
        /// The client has the current representation: 304.
        case notModified
        /// The client expects another representation: 412.
        case failed
    }

    /// Evaluates the conditions in the order of §13.2.2; `now` is the current time.
    func outcome(for current: Validators, at now: HTTPDate) -> Outcome {
        if !isExpected(current, at: now) { return .failed }
        if isKnown(current, at: now) { return .notModified }
        return .proceed(honoringRange: isSame(current))
    }

    /// Evaluates `If-Match`, or `If-Unmodified-Since` if that is missing.
    private func isExpected(_ current: Validators, at now: HTTPDate) -> Bool {
        if let ifMatch {
            return EntityTagCondition(ifMatch).contains { $0.matchesStrongly(current.tag) }
        }
        guard let ifUnmodifiedSince, let limit = HTTPDate(ifUnmodifiedSince, readAt: now) else {
            return true
        }
        return current.modified <= limit
    }

    /// Evaluates `If-None-Match`, or `If-Modified-Since` if that is missing.
    private func isKnown(_ current: Validators, at now: HTTPDate) -> Bool {
        if let ifNoneMatch {
            return EntityTagCondition(ifNoneMatch).contains { $0.matchesWeakly(current.tag) }
        }
        guard let ifModifiedSince, let limit = HTTPDate(ifModifiedSince, readAt: now) else {
            return false
        }
        return current.modified <= limit
    }

    /// Evaluates `If-Range`, which only the strong tag satisfies.
    ///
    /// A date never does: this origin sends a tag with every representation, and a file can change twice in a second.
    private func isSame(_ current: Validators) -> Bool {
        guard let ifRange else { return true }
        guard case .list(let tags) = EntityTagCondition(ifRange), tags.count == 1 else {
            return false
        }
        return tags[0].matchesStrongly(current.tag)
    }
}
