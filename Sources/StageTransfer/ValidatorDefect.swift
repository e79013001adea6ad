import StageModel

/// Reason why a response has no strong validator by which a later request can resume.
@nonexhaustive
public enum ValidatorDefect: Equatable, Sendable {
    /// There is no entity tag, and no date that can replace it.
    case missing
    /// The entity tag is weak, or malformed.
    case weakEntityTag
    /// By its dates the content changed in the second of the response, or later.
    case recentChange
}

extension ValidatorDefect {
    /// Checks the entity tag and the dates of a response; `nil` if it has a strong validator.
    ///
    /// A date counts only if there is no entity tag and the response is dated at least a second later (RFC 9110,
    /// sections 8.8.2.2 and 13.1.5). An entity tag of content that changed in the second of the response, or later,
    /// does not count either: servers derive tags from size and second.
    init?(_ head: ResponseHead) {
        if let tag = head.entityTag, !Validator.isStrong(tag) {
            self = .weakEntityTag
            return
        }
        switch head.isOlderThanAnswer {
        case true?:
            let canReturn =
                head.entityTag != nil || head.lastModified.map(Validator.isPrintable) ?? false
            guard !canReturn else { return nil }
            self = .missing
        case false?: self = .recentChange
        case nil:
            guard head.entityTag == nil else { return nil }
            self = .missing
        }
    }
}

extension ResponseHead {
    /// `true` if the content last changed before the second of the response; `nil` if a date is missing.
    fileprivate var isOlderThanAnswer: Bool? {
        guard let lastModified, let date else { return nil }
        guard let changed = HTTPDate(lastModified, readAt: .now),
            let answered = HTTPDate(date, readAt: .now)
        else { return false }
        return answered > changed
    }
}
