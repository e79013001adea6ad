import StageModel
import Testing

@testable import StageOrigin

@Suite
struct PreconditionsTests {
    static let current = Validators(
        tag: EntityTag(opaque: "a"),
        modified: HTTPDate(seconds: 784_111_777)
    )
    static let before = "Sun, 06 Nov 1994 08:49:36 GMT"
    static let same = "Sun, 06 Nov 1994 08:49:37 GMT"
    static let after = "Sun, 06 Nov 1994 08:49:38 GMT"

    static let cases: [(Preconditions, Preconditions.Outcome)] = [
        (Preconditions(), .proceed(honoringRange: true)),
        (Preconditions(ifMatch: "\"a\""), .proceed(honoringRange: true)),
        (Preconditions(ifMatch: "*"), .proceed(honoringRange: true)),
        (Preconditions(ifMatch: "\"b\", \"a\""), .proceed(honoringRange: true)),
        (Preconditions(ifMatch: "W/\"a\""), .failed),
        (Preconditions(ifMatch: "\"b\""), .failed),
        (Preconditions(ifMatch: "a"), .failed),
        (Preconditions(ifUnmodifiedSince: before), .failed),
        (Preconditions(ifUnmodifiedSince: same), .proceed(honoringRange: true)),
        (Preconditions(ifUnmodifiedSince: after), .proceed(honoringRange: true)),
        (Preconditions(ifUnmodifiedSince: "yesterday"), .proceed(honoringRange: true)),
        (Preconditions(ifMatch: "\"a\"", ifUnmodifiedSince: before), .proceed(honoringRange: true)),
        (Preconditions(ifNoneMatch: "\"a\""), .notModified),
        (Preconditions(ifNoneMatch: "W/\"a\""), .notModified),
        (Preconditions(ifNoneMatch: "\"b\",W/\"a\""), .notModified),
        (Preconditions(ifNoneMatch: "*"), .notModified),
        (Preconditions(ifNoneMatch: "\"b\""), .proceed(honoringRange: true)),
        (Preconditions(ifNoneMatch: "\"a"), .proceed(honoringRange: true)),
        (Preconditions(ifNoneMatch: "\"b\"", ifModifiedSince: same), .proceed(honoringRange: true)),
        (Preconditions(ifModifiedSince: before), .proceed(honoringRange: true)),
        (Preconditions(ifModifiedSince: same), .notModified),
        (Preconditions(ifModifiedSince: after), .notModified),
        (Preconditions(ifMatch: "\"b\"", ifNoneMatch: "\"a\""), .failed),
        (Preconditions(ifRange: "\"a\""), .proceed(honoringRange: true)),
        (Preconditions(ifRange: "W/\"a\""), .proceed(honoringRange: false)),
        (Preconditions(ifRange: "\"b\""), .proceed(honoringRange: false)),
        (Preconditions(ifRange: "\"b\", \"a\""), .proceed(honoringRange: false)),
        (Preconditions(ifRange: "*"), .proceed(honoringRange: false)),
        (Preconditions(ifRange: same), .proceed(honoringRange: false)),
        (Preconditions(ifRange: ""), .proceed(honoringRange: false)),
    ]

    @Test(arguments: cases)
    func conditionsAreEvaluatedInOrder(
        conditions: Preconditions,
        outcome: Preconditions.Outcome
    ) {
        #expect(conditions.outcome(for: Self.current, at: Self.current.modified) == outcome)
    }

    @Test(arguments: [
        ("\"a\"", EntityTagCondition.list([EntityTag(opaque: "a")])),
        (
            "\"a,b\" , W/\"\"",
            .list([EntityTag(opaque: "a,b"), EntityTag(opaque: "", isWeak: true)])
        ),
        (" * ", .list([])),
        ("*", .any),
        ("w/\"a\"", .list([])),
        ("\"a\" b", .list([])),
        ("", .list([])),
    ])
    func tagsAreReadAsTheyStand(field: String, condition: EntityTagCondition) {
        #expect(EntityTagCondition(field) == condition)
    }
}
